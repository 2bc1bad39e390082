"""Fill in the reference of the command line when the site is built."""

import io
from contextlib import redirect_stdout, suppress
from unittest.mock import patch

from lookalike.cli import COMMANDS, main

PLACE = "<!-- commands -->"
WIDTH = "100"  # characters of the help


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace the place on the page by the help of every command."""
    if PLACE not in markdown:
        return markdown
    sections = [f"## lookalike {name}\n\n```\n{_help(name)}\n```\n" for name in COMMANDS]
    return markdown.replace(PLACE, "\n".join(sections))


def _help(command: str) -> str:
    shown = io.StringIO()
    with patch.dict("os.environ", COLUMNS=WIDTH, NO_COLOR="1"), redirect_stdout(shown), suppress(SystemExit):
        main([command, "--help"])
    return shown.getvalue().strip()
