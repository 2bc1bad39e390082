"""Decide what the page shows, section by section, and render it as HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from lookalike import __version__
from lookalike.report.figures import codes, epochs, recall, retrieved, search_time
from lookalike.report.gallery import Gallery, NoGallery
from lookalike.report.groups import grouped
from lookalike.report.sampler_table import SamplerTable, Tile, table_of_comparison, table_of_runs
from lookalike.report.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lookalike.report.figures import Figure
    from lookalike.report.groups import Group
    from lookalike.report.records.analyses import Analysis
    from lookalike.report.records.benchmarks import SearchBenchmark
    from lookalike.report.records.reader import Records
    from lookalike.report.records.runs import Run

GENERATOR = "lookalike report"
MARKER = f'<meta name="generator" content="{GENERATOR}">'  # begins every page
TEMPLATES = Environment(
    loader=PackageLoader("lookalike.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["counted"] = counted
ANALYSIS_TITLE = "Codes against exact search"
ANALYSIS_FIGURES: dict[str, Callable[[Analysis], Figure | None]] = {
    "overlap": codes.overlap_by_bits,
    "positional distance": codes.positional_distance_by_bits,
    "similarity": retrieved.similarity_histogram,
    "bound usage": retrieved.bound_usage,
    "overlap against speed": codes.overlap_by_speed,
    "overlap against compression": codes.overlap_by_compression,
}


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled part of the page; it shows whatever it holds."""

    id: str
    title: str
    lead: str = ""
    table: SamplerTable | None = None
    figures: Sequence[Figure] = ()
    gallery: Gallery | NoGallery | None = None
    runs: Sequence[Run] = ()


class Missing(NamedTuple):
    """Something the page could show, and the command that makes it."""

    what: str
    command: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that a page shows."""

    title: str
    tiles: list[Tile] = field(default_factory=list)
    """The key figures."""
    sections: list[Section]
    notices: list[str]
    """What could not be read and is left out, in sentences."""
    missing: list[Missing]
    """What the paths do not hold."""


def build_report(records: Records, gallery: Gallery | NoGallery | None) -> Report:
    """Decide what the page shows; `gallery` is None if none was requested."""
    tables = [table_of_comparison(comparison) for comparison in records.comparisons]
    of_runs = table_of_runs([run for run in records.runs if not run.in_comparison])
    tables += [] if of_runs is None else [of_runs]
    groups = grouped([run for run in records.runs if run.epochs])
    parts: list[Section | Missing] = [_table(table, number) for number, table in enumerate(tables)]
    if not records.comparisons:
        parts.append(Missing("A comparison of samplers over several seeds", "lookalike compare DATA --seeds 5"))
    parts += [_curves(groups), _tracked(groups), _hardness(groups)]
    parts += [*_analyses(records.analyses), _search_time(records.benchmarks), _gallery(gallery)]
    if records.runs:
        parts.append(Section(id="runs", title="Runs", runs=records.runs))
    return Report(
        title=tables[0].headline if tables else "Analysis",
        tiles=tables[0].tiles() if tables else [],
        sections=[part for part in parts if isinstance(part, Section)],
        notices=list(records.notices),
        missing=[part for part in parts if isinstance(part, Missing)],
    )


def render(report: Report) -> str:
    """Return one HTML page that needs nothing else."""
    now = datetime.now(UTC)
    page = TEMPLATES.get_template("page.html").render(
        report=report, generator=GENERATOR, version=__version__, made=f"{now.day} {now:%B %Y, %H:%M} UTC"
    )
    return printable(page)


def _table(table: SamplerTable, number: int) -> Section:
    drawn = [recall.recall_by_sampler(table.rows), recall.recall_by_memory(table.rows)] if len(table.rows) > 1 else []
    return Section(id=_numbered("comparison", number), title=table.title, table=table, figures=_drawn(drawn))


def _curves(groups: list[Group]) -> Section | Missing:
    curves = epochs.training_curves(groups)
    if not curves:
        return Missing("Training curves", "lookalike train DATA")
    drawn = _drawn([*curves, epochs.bits_by_epoch(groups)])
    return Section(id="curves", title="Training curves", figures=drawn)


def _tracked(groups: list[Group]) -> Section | Missing:
    drawn = [figure for group in groups for figure in epochs.tracked_overlap(group)]
    if not drawn:
        return Missing("Overlap and positional distance by epoch", "lookalike train DATA --track-overlap")
    return Section(id="tracked", title=f"{ANALYSIS_TITLE}, by epoch", figures=drawn)


def _hardness(groups: list[Group]) -> Section | Missing:
    figure = recall.recall_by_hardness(groups)
    if figure is None:
        what = "Recall by hardness, from runs that differ in nothing else"
        return Missing(what, "lookalike train DATA --hardness 0.5 --out RUN")
    return Section(id="hardness", title="Hardness", figures=[figure])


def _analyses(analyses: list[Analysis]) -> Iterator[Section | Missing]:
    """Yield a section per analysis, and name the figures that none of them has."""
    absent = set(ANALYSIS_FIGURES)
    for number, analysis in enumerate(analyses):
        drawn = {name: draw(analysis) for name, draw in ANALYSIS_FIGURES.items()}
        absent -= {name for name, figure in drawn.items() if figure is not None}
        yield Section(
            id=_numbered("analysis", number),
            title=ANALYSIS_TITLE,
            lead=_about(analysis),
            figures=_drawn(list(drawn.values())),
        )
    if absent:
        listed = ", ".join(name for name in ANALYSIS_FIGURES if name in absent)
        yield Missing(f"{ANALYSIS_TITLE}: {listed}", "lookalike analyze RUN")


def _about(analysis: Analysis) -> str:
    """Describe what an analysis was made from, as far as it is known."""
    path, settings = analysis.path, analysis.settings
    parts = [
        "" if settings.n is None else counted(settings.n, "embedding"),
        "" if settings.dim is None else counted(settings.dim, "dimension"),
        "" if settings.k is None else f"the {settings.k} nearest",
        "" if settings.anchors is None else counted(settings.anchors, "anchor"),
    ]
    source = path.parent.name if path.name == "analysis.json" else path.name
    return ": ".join(filter(None, [source, ", ".join(filter(None, parts))])) + "."


def _search_time(benchmarks: list[SearchBenchmark]) -> Section | Missing:
    drawn = _drawn([search_time.search_time_by_size(benchmark) for benchmark in benchmarks])
    if not drawn:
        command = (
            "lookalike bench search --device cuda --out search_gpu.json, then lookalike report RUN search_gpu.json"
        )
        return Missing("Search time by size", command)
    return Section(id="speed", title="Search speed", figures=drawn)


def _gallery(gallery: Gallery | NoGallery | None) -> Section | Missing:
    if gallery is None:
        return Missing("The gallery of anchors and their hard negatives, which was turned off", "lookalike report RUN")
    lead = gallery.caption if isinstance(gallery, Gallery) else ""
    return Section(id="gallery", title="Lookalikes", lead=lead, gallery=gallery)


def _numbered(name: str, number: int) -> str:
    return f"{name}-{number}" if number else name


def _drawn(figures: Sequence[Figure | None]) -> list[Figure]:
    return [figure for figure in figures if figure is not None]
