"""What the tests ask of a page in the browser, in JavaScript."""

BACKGROUND = "getComputedStyle(document.body).backgroundColor"


# All elements that show text of their own, with their contrast against what lies behind them.
CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255).map(
      (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = Array.from(element.childNodes).some(
      (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!own || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const colour = parse(element.closest("svg") ? style.fill : style.color);
    const [high, low] = [light(colour), light(behind(element))].sort((a, b) => b - a);
    found.push([(high + 0.05) / (low + 0.05), element.tagName + ": " + element.textContent.trim()]);
  }
  return found;
}"""


# Of every plot: its box, and of every curve or bar in it the box, the marks and the paint.
PLOTS = """() => Array.from(document.querySelectorAll("svg.plot"), (svg) => ({
  label: svg.getAttribute("aria-label"),
  box: [svg.getBoundingClientRect().width, svg.getBoundingClientRect().height],
  parts: Array.from(svg.querySelectorAll("g.curve, g.bar"), (part) => ({
    kind: part.getAttribute("class"),
    box: [part.getBoundingClientRect().width, part.getBoundingClientRect().height],
    marks: part.querySelectorAll("use").length,
    stroke: getComputedStyle(part.querySelector("path")).stroke,
    fill: getComputedStyle(part.querySelector("path")).fill,
  })),
}))"""
