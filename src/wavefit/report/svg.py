"""Makes a chart of pygal part of a page: geometry stays, scripts, styles and links go.

The page's own style sheet colours the chart by class, so that one sheet serves dark, light and print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

_DROPPED = {"script", "style", "defs", "title", "desc"}


@dataclass(frozen=True)
class Series:
    """How one of a chart's series is shown.

    Attributes:
        css: its class in the style sheet.
        titles: what a pointer over each of its dots reads; empty where it has no dots.
        labels: what stands in each dot; empty for none.
    """

    css: str
    titles: Sequence[str] = ()
    labels: Sequence[str] = ()


def embed(root: Any, series: Sequence[Series], label: str) -> Markup:
    """An SVG element to stand in a page.

    Args:
        root: what pygal's ``render_tree`` gave.
        series: in the order in which they were added to the chart.
        label: what the picture shows, for a reader who cannot see it.
    """
    from pygal.etree import etree

    _prune(root)
    root.attrib.update({"class": "chart", "role": "img", "aria-label": label})
    for group in root.iter("g"):
        names = group.attrib.get("class", "").split()
        if "series" in names:
            index = int(names[1].removeprefix("serie-"))
            group.attrib["class"] = f"series {series[index].css}"
            _name_dots(group, series[index], etree)
    return Markup(etree.tostring(root, encoding="unicode"))


def _prune(parent: Any) -> None:
    """Drops scripts, styles, comments, tool tips that need a script, and values that only scripts read."""
    for child in list(parent):
        names = child.attrib.get("class", "").split() if isinstance(child.tag, str) else []
        if not isinstance(child.tag, str) or child.tag in _DROPPED or "tooltip-overlay" in names:
            parent.remove(child)
        else:
            _prune(child)


def _name_dots(group: Any, series: Series, etree: Any) -> None:
    dots = [dot for dot in group if "dots" in dot.attrib.get("class", "").split()]
    for index, dot in enumerate(dots):
        circle = dot.find("circle")
        etree.SubElement(dot, "title").text = series.titles[index]
        if series.labels:
            place = {"x": circle.attrib["cx"], "y": circle.attrib["cy"], "dy": "0.35em"}
            etree.SubElement(dot, "text", place).text = series.labels[index]
