"""The command line. Heavy imports happen inside the commands, so that `lookalike --help` answers at once."""

import sys
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


@app.command()
def demo(
    n: Annotated[int, typer.Option(min=2, help="Number of embeddings.")] = 20_000,
    dim: Annotated[int, typer.Option(min=1, help="Their dimension.")] = 256,
    k: Annotated[int, typer.Option(min=1, help="Hard negatives per embedding.")] = 128,
    bits: Annotated[str, typer.Option(help="Code lengths, multiples of 8, comma-separated.")] = "128,256,512,1024",
    seed: Annotated[int, typer.Option(help="Seed of embeddings and rotation.")] = 0,
) -> None:
    """Make embeddings, find their hard negatives in bits and exactly, and show overlap, time and memory."""
    lengths = _integers("--bits", bits)
    from lookalike.demo import run_demo

    run_demo(n, dim, k, lengths, seed)


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} takes integers with commas between them, such as 128,512, got {text!r}.") from None


def main() -> None:
    """Run the command line; what the user got wrong is said in one line, without a traceback."""
    try:
        app()
    except (ValueError, TypeError, FileNotFoundError) as error:
        typer.secho(f"lookalike: {error}", fg="red", err=True)
        sys.exit(2)
