"""Runs, comparisons and analyses on one page that opens from disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lookalike.report.gallery import try_gallery
from lookalike.report.page import MARKER, Report, build_report, render
from lookalike.report.records.reader import read_records
from lookalike.utils.files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Report", "make_report"]


def make_report(
    paths: str | Path | Iterable[str | Path],
    out: str | Path = "report.html",
    *,
    gallery: bool = True,
    force: bool = False,
    progress: bool = False,
) -> Report:
    """Write one self-contained page about runs, comparisons, analyses and search benchmarks.

    Args:
        paths: Folders of runs (`run.json`), of comparisons (`compare.json` and a folder per run) and of analyses
            (`analysis.json`), or such files, or search benchmarks.
        out: Where to write the page. An earlier report is overwritten.
        gallery: Load the data and the model of the best run, to show what it confuses.
        force: Overwrite `out` even if it is not a report.
        progress: Show progress bars on a terminal.

    Returns:
        What the page shows; `notices` names what could not be read, and `missing` what the paths do not hold.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A path holds nothing to show, everything is damaged, or `out` is something other than a report.
    """
    out = Path(out)
    _check_output(out, force=force)
    records = read_records(map(Path, [paths] if isinstance(paths, str | Path) else paths))
    report = build_report(records, try_gallery(records.runs, progress=progress) if gallery else None)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, render(report))
    return report


def _check_output(out: Path, *, force: bool) -> None:
    """Raise if writing would destroy something that is not a report."""
    if out.is_dir():
        raise ValueError(f"{out} is a folder; name the page with out=, such as {out / 'report.html'}.")
    if out.exists() and not force:
        with out.open(encoding="utf-8", errors="replace") as file:
            if MARKER not in file.read(4096):
                raise ValueError(
                    f"{out} is not a lookalike report: force=True overwrites it, out= chooses another page."
                )
