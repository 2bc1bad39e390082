"""Choose a command by its name, or print the names; without tyro, so that `lookalike --help` answers at once."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence

from lookalike.utils.messages import suggestion

Command = Callable[[list[str]], None]
WIDTH = 80  # of the help, at most


def run_one_of(commands: Mapping[str, tuple[str, Command]], args: Sequence[str], prog: str, description: str) -> None:
    """Run the command that the first argument names; print the help without one.

    Args:
        commands: The summary of each command, and what runs it with the other arguments, by name.
        args: The name of a command and its arguments.
        prog: What was typed before it.
        description: What the commands have in common.

    Raises:
        ValueError: There is no such command.
    """
    if not args or args[0] in ("-h", "--help"):
        print(_help({name: summary for name, (summary, _) in commands.items()}, prog, description))
    elif args[0] in commands:
        commands[args[0]][1](list(args[1:]))
    else:
        raise ValueError(f"there is no command {args[0]!r}{suggestion(args[0], commands)} See {prog} --help.")


def _help(summaries: Mapping[str, str], prog: str, description: str) -> str:
    """Draw boxes like those of tyro, which prints the help of each command."""
    common = {"-h, --help": "show this help message and exit"}
    if prog == "lookalike":
        common["--version"] = "show the version and exit"
    width = min(shutil.get_terminal_size().columns, WIDTH)
    boxes = [_box("options", common, width), _box("commands", summaries, width)]
    end = f"{prog} COMMAND --help describes a command."
    return "\n".join([f"usage: {prog} [-h] COMMAND ...", "", description, "", *boxes, "", end])


def _box(title: str, rows: Mapping[str, str], width: int) -> str:
    names = max(map(len, rows)) + 2
    lines = []
    for name, text in rows.items():
        first, *rest = textwrap.wrap(text, max(width - names - 4, 20))
        lines += [f"{name:<{names}}{first}", *(" " * names + line for line in rest)]
    inner = max(len(line) for line in lines)
    is_plain = "utf" not in (sys.stdout.encoding or "").lower()
    left, line, right, side, lower_left, lower_right = "+-+|++" if is_plain else "╭─╮│╰╯"
    top = f"{left}{f'{line} {title} '.ljust(inner + 2, line)}{right}"
    bottom = f"{lower_left}{line * (inner + 2)}{lower_right}"
    return "\n".join([top, *(f"{side} {text:<{inner}} {side}" for text in lines), bottom])
