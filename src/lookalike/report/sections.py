"""The sections of the page from whatever is there; what is not is put on a list with the command that makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lookalike.report import analysis, figures, outcomes
from lookalike.report.groups import Group, grouped, strategy_of
from lookalike.report.markup import Markup, join, printable, table, tag
from lookalike.report.showcase import showcase
from lookalike.report.speed import speed_by_size
from lookalike.report.standings import Standings, of_comparison, of_runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lookalike.report.figures import Figure
    from lookalike.report.gallery import Gallery
    from lookalike.report.sources import Sources

DAMAGE = (  # what a defect of ours could raise: the rest of the page is worth having
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
)


class Section(NamedTuple):
    """A part of the page with a title."""

    id: str
    title: str
    body: Markup


class Content:
    """Everything that the page says.

    Attributes:
        sections: In the order of the page.
        title: Of the page.
        tiles: Figures to remember: a figure, what it is, a remark.
        notices: What could not be read, in sentences.
        missing: What the data do not show, and the command that makes it.
    """

    def __init__(self, sources: Sources, gallery: Gallery | str | None) -> None:
        self.sources = sources
        self.groups: list[Group] = grouped([run for run in sources.runs if run.epochs])
        self.notices = list(sources.notices)
        self.missing: list[tuple[str, str]] = []
        self.tiles: list[tuple[str, str, str]] = []
        self.title = "Analysis"
        made = [
            *self._tables(),
            self._curves(),
            self._tracked(),
            self._hardness(),
            *self._analyses(),
            self._speed(),
            self._gallery(gallery),
            self._runs(),
        ]
        self.sections = [section for section in made if section is not None]

    def _attempt(self, what: str, make: Callable[..., Any], *arguments: Any) -> Any:
        """The result, or None and a notice where the data are not as they should be."""
        try:
            return make(*arguments)
        except DAMAGE as error:
            self.notices.append(printable(f"{what} cannot be shown ({type(error).__name__}: {error})."))
            return None

    def _tables(self) -> list[Section]:
        """A table per comparison, and one for other runs."""
        comparisons = self.sources.comparisons
        found = [self._attempt(f"The table of {path}", of_comparison, content) for path, content in comparisons]
        loose = [run for run in self.sources.runs if not run.of_comparison]
        found.append(self._attempt("The table of the runs", of_runs, loose))
        sections: list[Section] = []
        for each in filter(None, found):
            section = self._attempt(f"The table {each.title}", self._table, each, len(sections))
            if section is not None:
                sections.append(section)
        if not comparisons:
            self.missing.append(("A comparison of samplers over several seeds", "lookalike compare DATA --seeds 5"))
        return sections

    def _table(self, found: Standings, number: int) -> Section:
        pictures: list[Figure] = []
        if len(found.rows) > 1:
            drawn = outcomes.recall_by_sampler(found.rows, found.settings)
            memory = outcomes.recall_by_memory(found.rows, found.settings)
            pictures = [drawn, memory] if memory else [drawn]
        body = join([found.table(), grid(pictures)])
        if not number:
            self.title, self.tiles = found.headline, found.tiles()
        return Section(f"comparison-{number}" if number else "comparison", found.title, body)

    def _curves(self) -> Section | None:
        drawn = self._attempt("A curve", figures.curves, self.groups) or []
        bits = self._attempt("The number of bits by epoch", figures.bits_by_epoch, self.groups)
        if not drawn:
            self.missing.append(("Curves by epoch", "lookalike train DATA"))
            return None
        return Section("curves", "Epoch by epoch", grid([*drawn, bits] if bits else drawn))

    def _tracked(self) -> Section | None:
        drawn: list[Figure] = []
        for group in self.groups:
            drawn += self._attempt(f"The overlap of {group.label}", figures.tracked, group) or []
        if not drawn:
            self.missing.append(("Overlap and positional distance by epoch", "lookalike train DATA --track-overlap"))
            return None
        return Section("tracked", "What the bits keep, epoch by epoch", grid(drawn))

    def _hardness(self) -> Section | None:
        figure = self._attempt("The hardness curve", outcomes.hardness_curve, self.groups)
        if figure is None:
            what = "Recall by hardness, from runs that differ in nothing else"
            self.missing.append((what, "lookalike train DATA --hardness 0.5 --out RUN"))
            return None
        return Section("hardness", "How hard batches should be", grid([figure]))

    def _analyses(self) -> list[Section]:
        """A section for every analysis."""
        sections, absent = [], {name for name, _ in analysis.FIGURES}
        for number, (path, content) in enumerate(self.sources.analyses):
            drawn = []
            for name, make in analysis.FIGURES:
                figure = self._attempt(f"{name.capitalize()} of {path}", make, content)
                if figure is not None:
                    drawn.append(figure)
                    absent.discard(name)
            if drawn:
                about = tag("p", _about(path, content), class_="lead")
                identity = f"analysis-{number}" if number else "analysis"
                sections.append(Section(identity, "What bits keep of exact search", join([about, grid(drawn)])))
        if absent:
            listed = ", ".join(name for name, _ in analysis.FIGURES if name in absent)
            self.missing.append((f"What bits keep of exact search: {listed}", "lookalike analyze RUN"))
        return sections

    def _speed(self) -> Section | None:
        drawn = [self._attempt(f"The speed of {path}", speed_by_size, each) for path, each in self.sources.benchmarks]
        drawn = [figure for figure in drawn if figure is not None]
        if not drawn:
            command = (
                "lookalike bench search --device cuda --out search_gpu.json, then lookalike report RUN search_gpu.json"
            )
            self.missing.append(("Search time against size", command))
            return None
        return Section("speed", "How fast the search is", grid(drawn))

    def _gallery(self, found: Gallery | str | None) -> Section | None:
        if found is None:
            what = "The gallery of anchors and their hard negatives, which --no-gallery left out"
            self.missing.append((what, "lookalike report RUN"))
            return None
        return Section("gallery", "Lookalikes", showcase(found))

    def _runs(self) -> Section | None:
        """The runs with what they were trained with."""
        if not self.sources.runs:
            return None
        rows = [
            [
                str(run.path),
                strategy_of(run.config),
                str(run.config.get("seed", "")),
                run.state or "finished",
                str(run.config.get("data", "")),
                str(run.config.get("model", "")),
            ]
            for run in self.sources.runs
        ]
        listed = table(["folder", "sampler", "seed", "state", "data", "model"], rows, name="The runs", class_="plain")
        return Section(
            "runs",
            "The runs",
            tag("details", tag("summary", f"{len(rows)} {'folders' if len(rows) > 1 else 'folder'}"), listed),
        )


def grid(drawn: list[Figure]) -> Markup:
    """Figures side by side as there is room, each with its numbers behind it."""
    content = []
    for figure in drawn:
        legend = [tag("span", tag("i", class_=f"swatch {style}"), label) for label, style in figure.legend]
        caption = tag("figcaption", tag("h3", figure.title), tag("p", figure.note))
        keys = tag("p", *legend, class_="legend") if legend else Markup()
        behind = table(figure.headings, figure.rows, name=f"{figure.title}, numbers", class_="plain")
        numbers = tag("details", tag("summary", "numbers"), behind)
        content.append(tag("figure", caption, keys, figure.svg, numbers))
    return tag("div", *content, class_="grid") if content else Markup()


def _about(path: Path, content: dict[str, Any]) -> str:
    """What an analysis was made of."""
    known = content["settings"]
    words = {"n": "{:,} embeddings", "dim": "{} dimensions", "k": "the {} nearest", "anchors": "{:,} anchors"}
    parts = [text.format(known[name]) for name, text in words.items() if name in known]
    source = path.parent.name if path.name == "analysis.json" else path.name
    return f"{source}: {', '.join(parts)}." if parts else f"{source}."
