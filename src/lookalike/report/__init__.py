"""`lookalike report`: runs, comparisons and analyses on one page that opens from disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.report.gallery import Gallery, make_gallery, run_for_gallery
from lookalike.report.markup import shortened
from lookalike.report.page import MARKER, render
from lookalike.report.sections import Content
from lookalike.report.sources import read_sources
from lookalike.training.run_folder import MODEL
from lookalike.utils.files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lookalike.report.sources import Sources

__all__ = ["make_report"]

LONGEST_REASON = 500  # characters


def make_report(
    paths: Iterable[Path], out: Path, *, gallery: bool = True, force: bool = False, progress: bool = False
) -> Content:
    """Write one self-contained page about runs, comparisons and analyses.

    Args:
        paths: Folders of runs (`run.json`), of comparisons (`compare.json` and a folder per run) and of analyses
            (`analysis.json`).
        out: The page.
        gallery: Load data and model of the best run, to show what it confuses.
        force: Overwrite `out` even if it is no report.
        progress: Draw bars on a terminal.

    Returns:
        What the page says, with what could not be read (`notices`) and what is not there (`missing`).

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A path is none of these, nothing can be read, or `out` is something else than a report.
    """
    check_output(out, force=force)
    sources = read_sources(paths)
    content = Content(sources, _gallery(sources, progress=progress) if gallery else None)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, render(content))
    return content


def check_output(out: Path, *, force: bool) -> None:
    """Raise where writing would destroy what is no report."""
    if out.is_dir():
        raise ValueError(f"{out} is a folder; --out names the page, such as {out / 'report.html'}.")
    if out.exists() and not force:
        with out.open(encoding="utf-8", errors="replace") as file:
            if MARKER not in file.read(4096):
                raise ValueError(f"{out} is not a report of lookalike; --force overwrites it, --out names another.")


def _gallery(sources: Sources, *, progress: bool) -> Gallery | str:
    """The gallery, or a sentence that says why there is none."""
    try:
        run = run_for_gallery(sources.runs)
        if run is None:
            return f"There is no finished run with its model ({MODEL}/), so there is no model to look into."
        return make_gallery(run, progress=progress)
    except Exception as error:  # noqa: BLE001 - whatever data or weights raise, the rest of the page is worth having
        return f"The gallery could not be made: {shortened(str(error), LONGEST_REASON)}"
