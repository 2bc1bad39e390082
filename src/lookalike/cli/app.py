"""The application that commands are added to, and what several of them take."""

from typing import Annotated

import typer

from lookalike import __version__

app = typer.Typer(
    name="lookalike",
    help="Hard negatives for contrastive learning, found in bits.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lookalike {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    pass


Device = Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="a GPU if there is one")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what the output folder holds.")]


def integers(option: str, text: str) -> list[int]:
    """Numbers with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} takes integers with commas between them, such as 128,512, got {text!r}.") from None


@app.command(hidden=True)
def _nothing() -> None:
    """A single command would lose its name."""


def bridge(args: list[str]) -> None:
    """Run a command that is not converted yet."""
    try:
        app(args, prog_name="lookalike")
    except SystemExit as ended:
        if ended.code:
            raise
