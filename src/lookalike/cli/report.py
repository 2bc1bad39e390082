"""`lookalike report`: runs, comparisons and analyses on one page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lookalike.cli.parsing import Flag, Hint, Positional, parse


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `lookalike report`."""

    runs: Positional[Annotated[tuple[Path, ...], Hint(value="RUN ...")]]
    """Folders of runs, comparisons or analyses."""
    out: Path = Path("report.html")
    """Page to write."""
    gallery: bool = True
    """Load data and model to show which samples the model confuses."""
    force: Flag = False
    """Overwrite --out even if it is not a report."""


def main(args: list[str]) -> None:
    """Show runs on one page that opens from disk: tables, curves, what bits find, and a gallery of lookalikes."""
    options = parse(Options, args, "report", main.__doc__)
    if not options.runs:
        raise ValueError("name at least one folder of a run, a comparison or an analysis. See lookalike report --help.")
    from lookalike.report import make_report

    out = options.out
    content = make_report(list(options.runs), out, gallery=options.gallery, force=options.force, progress=True)
    for notice in content.notices:
        print(notice)
    for what, command in content.missing:
        print(f"Missing: {what} ({command})")
    print(f"Written: {out} ({out.stat().st_size / 1e3:,.0f} kB)")
