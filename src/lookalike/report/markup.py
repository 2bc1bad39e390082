"""HTML and SVG from Python: what is not markup already is escaped."""

from __future__ import annotations

import math
import re
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VOID = ("meta", "img", "br")  # have no end tag
SHAPES = ("path", "line", "rect", "circle")
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is markup: it is not escaped again."""

    __slots__ = ()


def printable(text: str) -> str:
    """Replace what neither UTF-8 nor HTML can hold: control characters and halves of surrogate pairs.

    Examples:
        >>> printable("one\\x00two")
        'one\ufffdtwo'
    """
    return UNPRINTABLE.sub("\ufffd", text)


def shortened(text: str, longest: int) -> str:
    """Cut a text off after so many characters, the last of them an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"


def tag(name: str, *content: str, **attributes: object) -> Markup:
    """An element; `class_` is class, other underscores become hyphens, attributes that are None are left out.

    Examples:
        >>> tag("p", "1 < 2 ", tag("b", "so it is"), class_="note")
        '<p class="note">1 &lt; 2 <b>so it is</b></p>'
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    opened = name + "".join(f' {key}="{escape(printable(_number(value)))}"' for key, value in named.items())
    if name in VOID:
        return Markup(f"<{opened}>")
    if name in SHAPES and not content:
        return Markup(f"<{opened}/>")
    return Markup(f"<{opened}>{join(content)}</{name}>")


def join(parts: Iterable[str]) -> Markup:
    """One piece of markup after the other."""
    return Markup("".join(part if isinstance(part, Markup) else escape(printable(part), quote=False) for part in parts))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, name: str, class_: str | None = None) -> Markup:
    """A table in a box that scrolls by itself where it is too wide; the first cell of a row is its heading."""
    head = tag("thead", tag("tr", *(tag("th", heading, scope="col") for heading in headings)))
    body = tag("tbody", *(tag("tr", tag("th", row[0], scope="row"), *(tag("td", x) for x in row[1:])) for row in rows))
    whole = tag("table", head, body, class_=class_)
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=name)


def _number(value: object) -> str:
    """Coordinates to a tenth of a pixel are enough."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} cannot be drawn")
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
