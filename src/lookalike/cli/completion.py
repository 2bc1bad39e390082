"""`lookalike completion`: a script with which a shell completes commands, options, values and names of data sets."""

from dataclasses import dataclass
from typing import get_args

from lookalike.cli.parsing import Positional, parse
from lookalike.cli.shells import Shell, script
from lookalike.utils.checks import check_choice


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `lookalike completion`."""

    shell: Positional[Shell]
    """bash, zsh or fish."""

    def __post_init__(self) -> None:
        check_choice("SHELL", self.shell, get_args(Shell))


def main(args: list[str]) -> None:
    """Print a script with which a shell completes commands, options, choices and the names of data sets.

    For bash and zsh: source <(lookalike completion bash). For fish: lookalike completion fish | source.
    """
    options = parse(Options, args, "completion", main.__doc__)
    from lookalike.cli.words import commands

    print(script(options.shell, list(commands())), end="")
