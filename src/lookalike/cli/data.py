"""`lookalike data`."""

from pathlib import Path
from typing import Annotated

import typer

from lookalike.cli.app import app
from lookalike.cli.training import DataOption, _named

data_sets = typer.Typer(help="Data sets to train on.", no_args_is_help=True)
app.add_typer(data_sets, name="data")


@data_sets.command("list")
def data_list() -> None:
    """Show what can be trained on."""
    from lookalike.data import DATA_SETS

    for name, about in DATA_SETS.items():
        typer.echo(f"{name:<14} {about}")


@data_sets.command("check")
def data_check(
    name: Annotated[str, typer.Argument(help="A data set, as in `lookalike data list`.")],
    root: Annotated[Path | None, typer.Argument(help="Its folder or file.", show_default=False)] = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image, not only look for it.")] = False,
    sheet: Annotated[
        Path | None, typer.Option(help="The contact sheet.", show_default="contact-sheet-NAME.png")
    ] = None,
    data_option: DataOption = None,
) -> None:
    """Compare a data set with its official counts and show a dozen pairs; fails if something is missing."""
    from lookalike.cli.commands import run_data_check

    if not run_data_check(name, root, decode, sheet, _named("--data-option", data_option)):
        raise typer.Exit(1)
