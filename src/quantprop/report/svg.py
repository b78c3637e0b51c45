"""Matplotlib's figures inside a page: real text, colours that follow the page's own, and ids that do not collide."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET

from quantprop import plots
from quantprop.plots.canvas import Figure, style
from quantprop.runtime.markup import Markup

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
STYLE = {
    "svg.fonttype": "none", "font.size": 10, "font.family": "sans-serif", "axes.spines.top": False,
    "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 9,
}  # fmt: skip
PAGE_COLOURS = {
    plots.BLACK: "ink", "#ffffff": "paper", plots.GREY: "muted", plots.BLUE: "blue", plots.RED: "red",
    plots.GREEN: "green", plots.ORANGE: "orange",
}  # fmt: skip
_COLOUR = re.compile("|".join(PAGE_COLOURS), re.IGNORECASE)
_LINK = re.compile(r"url\(#([^)]+)\)")


def inline(figure: Figure, alt: str, key: str) -> Markup:
    """A figure as an <svg> element; `key` makes its ids unique on the page."""
    file = io.StringIO()
    with style.context(["default", {**STYLE, "svg.hashsalt": key}]):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    root = ET.fromstring(file.getvalue())
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    for node in root.iter():
        _adapt(node, key)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": alt, "class": "figure"}
    return Markup(ET.tostring(root, encoding="unicode"))


def _adapt(node: ET.Element, key: str) -> None:
    """Ids and links with the key before them, colours by name; texts stay as they are."""
    if node.tag == f"{{{SVG}}}style":
        node.text = ".figure " + (node.text or "")  # or it would hold for the whole page
    if "id" in node.attrib:
        node.attrib["id"] = f"{key}-{node.attrib['id']}"
    for name in (f"{{{XLINK}}}href", "href"):
        if node.attrib.get(name, "").startswith("#"):
            node.attrib[name] = f"#{key}-{node.attrib[name][1:]}"
    for name, value in node.attrib.items():
        if name in ("style", "clip-path", "fill", "stroke"):
            linked = _LINK.sub(lambda found: f"url(#{key}-{found[1]})", value)
            node.attrib[name] = _COLOUR.sub(lambda found: f"var(--{PAGE_COLOURS[found[0].lower()]})", linked)
