"""`lookalike data list` and `lookalike data check`."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from lookalike.cli.menu import run_one_of
from lookalike.cli.parsing import Flag, Hint, Pairs, Positional, parse
from lookalike.data.registry import data_names, data_sets

LIST = "List the data sets to train on."
CHECK = "Compare a data set with its official counts and show a dozen pairs."
SHOWN = 10  # paths of bad images, at most
LONGEST = 160  # characters of a text


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `lookalike data check`."""

    name: Positional[Annotated[str, Hint(words=data_names)]]
    """A data set, as `lookalike data list` names it."""
    root: Positional[Path | None] = None
    """Its folder or file."""
    decode: Flag = False
    """Decode every image instead of only looking for its file."""
    sheet: Annotated[Path | None, Hint(default="contact-sheet-NAME.png")] = None
    """Contact sheet to write."""
    data_options: Pairs = field(default_factory=dict)
    """Option of the data set's reader, such as size=224."""


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """`lookalike data list` has none."""


MENU = {"list": (LIST, NoOptions), "check": (CHECK, Options)}


def main(args: list[str]) -> None:
    """List data sets, or check one."""
    functions = {"list": list_data_sets, "check": check}
    commands = {name: (summary, functions[name]) for name, (summary, _) in MENU.items()}
    run_one_of(commands, args, "lookalike data", "Data sets to train on.")


def list_data_sets(args: list[str]) -> None:
    """List the data sets to train on."""
    parse(NoOptions, args, "data list", list_data_sets.__doc__)
    for entry in data_sets().values():
        print(f"{entry.name:<14} {entry.description}")


def check(args: list[str]) -> None:
    """Compare a data set with its official counts and show a dozen pairs; exit with 1 if something is missing."""
    options = parse(Options, args, "data check", check.__doc__)
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from lookalike.data.check import check_data, contact_sheet

    console = Console()
    report = check_data(options.name, options.root, decode=options.decode, progress=True, **options.data_options)
    console.print(f"{report.data.description[0].upper()}{report.data.description[1:]}.", highlight=False)
    if report.counts:
        table = Table("", "found", "official", "")
        for count in report.counts:
            official = "" if count.official is None else f"{count.official:,}"
            table.add_row(count.name, f"{count.found:,}", official, "" if count.agrees else "differs")
        console.print(table)
    for path in report.bad[:SHOWN]:
        console.print(f"{path} {'cannot be read' if path.exists() else 'is missing'}", highlight=False, soft_wrap=True)
    if report.bad:
        console.print(f"{len(report.bad):,} images are missing or unreadable.", highlight=False)
    elif isinstance(report.pairs[0][0], str):
        for query, reference in report.pairs:
            shown = f"[bold]{escape(query[:LONGEST])}[/bold]\n  {escape(reference[:LONGEST])}"
            console.print(shown, highlight=False)
    else:
        sheet = options.sheet or Path(f"contact-sheet-{Path(options.name).stem}.png")
        contact_sheet(report.pairs).save(sheet)
        console.print(f"Written: {sheet}", highlight=False, soft_wrap=True)
    if not report.complete:
        sys.exit(1)
