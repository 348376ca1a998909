"""A matplotlib figure as SVG that becomes part of the page.

What matplotlib writes is a document of its own. Inside of a page its ids would meet those of other
figures, its style sheet would hold everywhere, and its colours would stay those of one scheme. So
ids get a prefix, what is not drawing goes, and every colour of :data:`PALETTE` becomes the CSS
variable of that name.
"""

import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = {
    name: f"#00{index:02x}fe"
    for index, name in enumerate(
        ("ink", "muted", "line", "surface", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"), 1
    )
}
"""Names of CSS variables, and the colour that stands for each while matplotlib draws."""

SERIES = tuple(name for name in PALETTE if re.fullmatch(r"s\d", name))

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_FONT = re.compile(r"font-family:[^;]*;?\s*")
_NO_TURN = re.compile(r"rotate\(-?0 ")
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and takes the page's font
    "svg.hashsalt": "linattn",  # or ids would be drawn by chance
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that sizes are the same everywhere
    "font.size": 8.0,
}


def settings() -> dict[str, object]:
    """What must hold while a figure is made and while it is written."""
    return dict(_SETTINGS)


def inline_svg(figure: "Figure", name: str, label: str) -> str:
    """``figure`` as an ``<svg>`` element for a page.

    Args:
        figure: drawn in the colours of :data:`PALETTE`.
        name: unique on the page.
        label: what the figure shows, for those who cannot see it.
    """
    buffer = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    root = ET.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{_SVG}style" or child.tag.endswith("metadata"):
                parent.remove(child)
    used = {match for element in root.iter() for match in _references(element)}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        _clean(element, name, used)
    width, height = (root.attrib.pop(side).removesuffix("pt") for side in ("width", "height"))
    root.set("viewBox", f"0 0 {width} {height}")
    root.set("role", "img")
    root.set("aria-label", label)
    root.set("class", "plot")
    text = ET.tostring(root, encoding="unicode")
    for variable, colour in PALETTE.items():
        text = text.replace(colour, f"var(--{variable})")
    # Line breaks after every element are a tenth of the size.
    return re.sub(r">\s+<", "><", text)


def _references(element: ET.Element) -> list[str]:
    found = [value[1:] for key, value in element.attrib.items() if key == _HREF]
    for value in element.attrib.values():
        found += re.findall(r"url\(#([^)]+)\)", value)
    return found


def _clean(element: ET.Element, name: str, used: set[str]) -> None:
    """Prefix the ids that something refers to, drop the others, and drop the name of the font."""
    identity = element.attrib.pop("id", None)
    if identity in used:
        element.set("id", f"{name}-{identity}")
    if identity is not None and re.match(r"(curve|crossover|bar)-", identity):
        element.set("class", identity.split("-")[0])
    if _HREF in element.attrib:
        element.set("href", f"#{name}-{element.attrib.pop(_HREF)[1:]}")
    if _NO_TURN.match(element.get("transform", "")):
        del element.attrib["transform"]
    for key, value in element.attrib.items():
        element.set(key, _FONT.sub("", value.replace("url(#", f"url(#{name}-")))
