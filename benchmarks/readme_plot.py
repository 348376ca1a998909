"""Takes the plot of the README out of a report.

    python benchmarks/readme_plot.py FOLDER

FOLDER is what ``linattn-export build`` wrote, with latency. The plot is the one of ``report.html``
that shows all methods of the first model on ONNX Runtime, as an image of its own:
``docs/latency.svg``.
"""

import argparse
import re
from importlib import resources
from pathlib import Path

from linattn_runtime_checks.report.html.sections import model_sections
from linattn_runtime_checks.results.report import Report

IMAGE = Path(__file__).parents[1] / "docs" / "latency.svg"
_RUNTIME = "Latency on ort-cpu"


def image(report: Report) -> str:
    """The plot with the colours that the page gives it, light and dark."""
    (svg,) = [plot.svg for plot in model_sections(report)[0].plots if plot.title == _RUNTIME]
    page = resources.files("linattn_runtime_checks.report.html") / "templates" / "style.css"
    colours = re.match(r":root \{.*?\n\}\n@media [^\n]*\n.*?\n\}\n", page.read_text(), re.DOTALL)
    assert colours is not None
    style = f"<style>{colours.group(0)}svg {{ background: var(--surface); "
    style += "font-family: sans-serif; }</style>"
    start = svg.index(">") + 1
    opened = svg[:start].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{opened}{style}{svg[start:]}\n"


def main() -> None:
    """Write the image."""
    parser = argparse.ArgumentParser(description="see the head of this file")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    text = (options.folder / "report.json").read_text(encoding="utf-8")
    IMAGE.write_text(image(Report.model_validate_json(text)), encoding="utf-8")


if __name__ == "__main__":
    main()
