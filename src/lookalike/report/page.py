"""The page around its sections."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING

from lookalike import __version__
from lookalike.report.markup import Markup, tag

if TYPE_CHECKING:
    from lookalike.report.sections import Content

MARKER = '<meta name="generator" content="lookalike report">'


def render(content: Content) -> str:
    """One HTML file that needs nothing else."""
    style = files("lookalike.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{MARKER}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"{tag('title', f'{content.title} - lookalike report')}\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n{_header(content)}\n{_main(content)}\n{_footer()}\n</body>\n</html>\n"
    )


def _header(content: Content) -> Markup:
    tiles = [
        tag("div", tag("dt", what), tag("dd", tag("b", value), tag("span", remark)))
        for value, what, remark in content.tiles
    ]
    links = [tag("a", section.title, href=f"#{section.id}") for section in content.sections]
    return tag(
        "header",
        tag("p", "lookalike report", class_="brand"),
        tag("h1", content.title),
        tag("dl", *tiles, class_="tiles") if tiles else Markup(),
        tag("nav", *links, aria_label="Sections"),
    )


def _main(content: Content) -> Markup:
    notices = _list("notices", "Notes", [tag("li", notice) for notice in content.notices])
    missing = [tag("li", f"{what}: ", tag("code", command)) for what, command in content.missing]
    sections = [tag("section", tag("h2", each.title), each.body, id=each.id) for each in content.sections]
    return tag("main", notices, *sections, _list("missing", "What is missing, and which command makes it", missing))


def _footer() -> Markup:
    when = datetime.now(UTC)
    return tag("footer", f"Made by lookalike {__version__}, {when.day} {when:%B %Y, %H:%M} UTC.")


def _list(name: str, title: str, items: list[Markup]) -> Markup:
    return tag("section", tag("h2", title), tag("ul", *items), class_=name, id=name) if items else Markup()
