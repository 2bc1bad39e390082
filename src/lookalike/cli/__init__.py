"""The command line. Heavy imports happen inside the commands, so that `lookalike --help` answers at once."""

import sys

import typer

from lookalike.cli import bench, data, inspection, mining, training  # they add their commands
from lookalike.cli.app import app

__all__ = ["app", "bench", "data", "inspection", "main", "mining", "training"]


def main() -> None:
    """Run the command line; what the user got wrong is said in one line, without a traceback."""
    try:
        app()
    except OSError as error:
        said = str(error) if error.errno is None else f"{error.filename or 'the system'}: {error.strerror}."
        typer.secho(f"lookalike: {said}", fg="red", err=True)
        sys.exit(2)
    except (ValueError, TypeError, ImportError) as error:
        typer.secho(f"lookalike: {error}", fg="red", err=True)
        sys.exit(2)
