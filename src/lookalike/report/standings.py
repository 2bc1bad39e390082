"""The comparison as a table: of compare.json, or of runs as far as they got."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from lookalike.comparison import HEADINGS, METRICS, ZERO_SHOT, cells, conditions, summary
from lookalike.report.groups import grouped
from lookalike.report.markup import Markup, join, table, tag
from lookalike.report.outcomes import style_of

if TYPE_CHECKING:
    from lookalike.report.sources import Run


@dataclass(frozen=True)
class Standings:
    """Rows as `lookalike.comparison.summary` makes them, with what they hold for."""

    title: str
    headline: str
    rows: list[dict[str, Any]]
    settings: dict[str, Any]  # by sampler, where known
    conditions: str

    def table(self) -> Markup:
        """The table, the best of every column set off."""
        lines = [cells(row) for row in self.rows]
        shown = [i for i in range(len(HEADINGS)) if any(line[i] for line in lines)]
        best = {1 + i: max(row[metric]["mean"] for row in self.rows) for i, metric in enumerate(METRICS)}
        body = []
        for row, line in zip(self.rows, lines, strict=True):
            swatch = tag("span", class_=f"swatch {style_of(row['sampler'], self.settings)}", aria_hidden="true")
            content: list[str] = [Markup(swatch + tag("span", line[0]))]
            for i in shown[1:]:
                leads = len(lines) > 1 and i in best and row[METRICS[i - 1]]["mean"] == best[i]
                content.append(tag("strong", line[i]) if leads else line[i])
            body.append(content)
        columns = [HEADINGS[i] for i in shown]
        return join(
            [table(columns, body, name=self.title, class_="standings"), tag("p", self.conditions, class_="fine")]
        )

    def tiles(self) -> list[tuple[str, str, str]]:
        """What to remember: a figure, what it is, and a remark."""
        best = max(self.rows, key=lambda row: row["recall@1"]["mean"])
        tiles = [(f"{best['recall@1']['mean']:.1%}", "recall@1", f"the best: {best['sampler']}")]
        others = {row["sampler"].partition(",")[0]: row for row in self.rows}
        bits = [row for row in self.rows if row["sampler"].startswith("lsh")]
        if not bits:
            return tiles
        ours = max(bits, key=lambda row: row["recall@1"]["mean"])
        if "random" in others:
            gain = 100 * (ours["recall@1"]["mean"] - others["random"]["recall@1"]["mean"])
            error = (ours.get("gain_over_random") or {}).get("standard_error")
            spread = "" if error is None else f", ±{100 * error:.1f} standard error"
            tiles.append((f"{gain:+.1f}", "points over random", f"{ours['sampler']}{spread}"))
        if ours["mining_share"] is not None:
            seconds = ours["mining_seconds_per_epoch"]
            tiles.append((f"{ours['mining_share']:.1%}", "of the time for mining", f"{seconds:.2f} s per epoch"))
        floats = next((others[name]["kept_bytes"] for name in ("incremental", "full") if name in others), None)
        remark = f"{floats / ours['kept_bytes']:.0f} times less than floats" if floats and ours["kept_bytes"] else ""
        size = ours["kept_bytes"]
        shown = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
        tiles.append((shown, "kept between epochs", remark or ours["sampler"]))
        return tiles


def of_comparison(content: dict[str, Any]) -> Standings:
    """The table that `lookalike compare` wrote."""
    data, rows, seeds = content["data"], content["rows"], content["seeds"]
    samplers = sum(row["sampler"] != ZERO_SHOT for row in rows)
    headline = f"{data}: {samplers} samplers, {seeds} {'seeds' if seeds > 1 else 'seed'}"
    return Standings(f"Comparison on {data}", headline, rows, content["settings"], conditions(content))


def of_runs(runs: list[Run]) -> Standings | None:
    """A row per configuration; unfinished runs with their last epoch, said so."""
    results, settings = {}, {}
    for group in grouped(runs):
        for finished in (True, False):
            members = [run for run in group.runs if bool(run.result) == finished and (run.result or run.epochs)]
            if members:
                label = group.label if finished else f"{group.label} ({members[0].state})"
                results[label], settings[label] = [run.result or _so_far(run) for run in members], group.config
    if not results:
        return None
    names = {str(run.config.get("data", "")) for run in runs}
    data = PurePath(names.pop()).name if len(names) == 1 else "several data sets"
    headline = f"{data}: {len(runs)} {'runs' if len(runs) > 1 else 'run'}"
    seeds = max(len(members) for members in results.values())
    several = "mean ± standard deviation over seeds, " if seeds > 1 else ""
    return Standings(f"Runs on {data}", headline, summary(results), settings, f"{several}in points.".capitalize())


def check(run: Run) -> bool:
    """Raise what a row of this run alone would raise."""
    return not run.epochs or bool(cells(summary({"": [run.result or _so_far(run)]})[0]))


def _so_far(run: Run) -> dict[str, Any]:
    """What result.json would say if the run had ended here."""
    mined, last = run.epochs[1:], run.epochs[-1]
    seconds = sum(epoch["seconds"] for epoch in mined)
    return {
        "metrics": last,
        "seconds": sum(epoch["seconds"] for epoch in run.epochs),
        "mining_seconds_per_epoch": sum(epoch["mining_seconds"] for epoch in mined) / len(mined) if mined else None,
        "mining_share": sum(epoch["mining_seconds"] for epoch in mined) / seconds if seconds else None,
        "kept_bytes": last["kept_bytes"],
        "config": {"seed": 0, **run.config},
    }
