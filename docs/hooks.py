"""What the site makes of the code when it is built: the reference of the command line."""

import typer.main
from typer.cli import get_docs_for_click

from lookalike.cli import app

PLACE = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Fill in the commands with what --help says."""
    if PLACE not in markdown:
        return markdown
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="lookalike")
    reference = get_docs_for_click(obj=command, ctx=context, name="lookalike")
    return markdown.replace(PLACE, reference.split("\n", 1)[1])  # its title is the page's
