"""The comparison as a table: of compare.json, or of runs as far as they got."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from lookalike.report.groups import grouped
from lookalike.report.markup import Markup, join, table, tag
from lookalike.report.outcomes import style_of
from lookalike.training.comparison_results import METRICS, ZERO_SHOT, summarize
from lookalike.training.results import RunResult

if TYPE_CHECKING:
    from lookalike.report.sources import Run

TITLES = dict(zip(METRICS, ("R@1", "R@5", "R@10", "R@1%", "MRR@10"), strict=True))
TOLD_APART = 2  # standard errors between two means


@dataclass(frozen=True)
class Standings:
    """Rows as `ComparisonRow.as_json` makes them, with what they hold for."""

    title: str
    headline: str
    rows: list[dict[str, Any]]
    settings: dict[str, Any]  # by sampler, where known
    conditions: str
    timed: bool = True  # whether times mean anything: runs side by side disturb each other's

    def table(self) -> Markup:
        """The table; bold is the best of a column and what cannot be told from it, where anything can."""
        columns = {title: [_mean_and_spread(row[name]) for row in self.rows] for name, title in TITLES.items()}
        columns["over random"] = [_gain(row["gain_over_random"]) for row in self.rows]
        columns["mining, epoch"] = [_mining(row) if self.timed else "" for row in self.rows]
        columns["kept"] = [
            "" if row["kept_bytes"] is None else f"{row['kept_bytes'] / 1e6:.1f} MB" for row in self.rows
        ]
        bold = {title: self._leaders(name) for name, title in TITLES.items()}
        shown = {title: cells for title, cells in columns.items() if any(cells)}
        body = []
        for number, row in enumerate(self.rows):
            swatch = tag("span", class_=f"swatch {style_of(row['sampler'], self.settings)}", aria_hidden="true")
            cells = [
                tag("strong", texts[number]) if number in bold.get(title, ()) else texts[number]
                for title, texts in shown.items()
            ]
            body.append([Markup(swatch + tag("span", row["sampler"])), *cells])
        said = [self.conditions]
        if any(bold.values()):
            said.append(f"Bold: the best of a column, and what is within {TOLD_APART} standard errors of it.")
        return join(
            [
                table(["sampler", *shown], body, name=self.title, class_="standings"),
                tag("p", " ".join(said), class_="fine"),
            ]
        )

    def _leaders(self, metric: str) -> list[int]:
        """Rows to set off among those that were trained: a model before training is no contender."""
        return leaders([row[metric] if row["sampler"] in self.settings else None for row in self.rows])

    def tiles(self) -> list[tuple[str, str, str]]:
        """What to remember: a figure, what it is, and a remark."""
        tiles = self._recall_tiles()
        others = {row["sampler"].partition(",")[0]: row for row in self.rows}
        bits = [row for row in self.rows if row["sampler"].startswith("lsh")]
        if not bits:
            return tiles
        ours = max(bits, key=_recall)
        if "random" in others:
            gain = 100 * (_recall(ours) - _recall(others["random"]))
            error = (ours["gain_over_random"] or {}).get("standard_error")
            spread = ", one seed" if error is None else f", ±{100 * error:.1f} standard error"
            tiles.append((f"{gain:+.1f}", "points over random", f"{ours['sampler']}{spread}"))
        if self.timed and ours["mining_share"] is not None and ours["mining_seconds_per_epoch"] is not None:
            seconds = ours["mining_seconds_per_epoch"]
            tiles.append((f"{ours['mining_share']:.1%}", "of the time for mining", f"{seconds:.2f} s per epoch"))
        if ours["kept_bytes"] is not None:
            floats = next((others[name]["kept_bytes"] for name in ("incremental", "full") if name in others), None)
            size = ours["kept_bytes"]
            remark = f"{floats / size:.0f} times less than floats" if floats and size else ours["sampler"]
            shown = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
            tiles.append((shown, "kept between epochs", remark))
        return tiles

    def _recall_tiles(self) -> list[tuple[str, str, str]]:
        """The highest recall of what was trained, where seeds show how far it can be trusted; else the range."""
        trained = [row for row in self.rows if row["sampler"] in self.settings]
        if not trained:
            return []
        worst, best = min(trained, key=_recall), max(trained, key=_recall)
        if all(len(row["recall@1"]["values"]) > 1 for row in trained):
            return [(f"{_recall(best):.1%}", "recall@1", f"the highest mean: {best['sampler']}")]
        if len(trained) == 1:
            return [(f"{_recall(best):.1%}", "recall@1", f"{best['sampler']}, one seed")]
        remark = f"{len(trained)} samplers, too few seeds to rank them"
        return [(f"{_recall(worst):.1%} to {_recall(best):.1%}", "recall@1", remark)]


def leaders(column: list[dict[str, Any] | None]) -> list[int]:
    """Which of some means over seeds to set off: the best and those not worse by more than its noise.

    None, where all are alike, and where a mean of one seed says nothing of noise.
    """
    known = {i: each for i, each in enumerate(column) if each and each["sd"] is not None and len(each["values"]) > 1}
    if len(known) < 2:
        return []
    best = max(known.values(), key=lambda each: each["mean"])
    alike = [i for i, each in known.items() if best["mean"] - each["mean"] <= TOLD_APART * _standard_error(best, each)]
    return alike if len(alike) < len(known) else []


def of_comparison(content: dict[str, Any]) -> Standings:
    """The table that `lookalike compare` wrote."""
    data, rows, seeds = content["data"], content["rows"], content["seeds"]
    settings = content["settings"] or {row["sampler"]: {} for row in rows if row["sampler"] != ZERO_SHOT}
    contenders = sum(row["sampler"] in settings for row in rows)
    headline = f"{data}: {_counted(contenders, 'sampler')}, {_counted(seeds, 'seed')}"
    timed = content["jobs"] == 1
    return Standings(f"Comparison on {data}", headline, rows, settings, _conditions(content), timed)


def of_runs(runs: list[Run]) -> Standings | None:
    """A row per configuration; unfinished runs with their last epoch that was evaluated, said so."""
    results: dict[str, list[dict[str, Any]]] = {}
    settings: dict[str, Any] = {}
    for group in grouped(runs):
        for finished in (True, False):
            members = [run for run in group.runs if bool(run.result) == finished]
            known = [result for result in (run.result or _so_far(run) for run in members) if result is not None]
            if known:
                label = group.label if finished else f"{group.label} ({members[0].state})"
                results[label], settings[label] = known, group.config
    if not results:
        return None
    names = {str(run.config.get("data", "")) for run in runs}
    data = PurePath(names.pop()).name if len(names) == 1 else "several data sets"
    seeds = max(len(members) for members in results.values())
    several = "mean ± standard deviation over seeds, " if seeds > 1 else ""
    rows = [{"gain_over_random": None, **row} for row in _summary(results)]
    headline = f"{data}: {_counted(len(runs), 'run')}"
    return Standings(f"Runs on {data}", headline, rows, settings, f"{several}in points.".capitalize())


def _summary(results: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    typed = {name: [RunResult.from_json(run) for run in runs] for name, runs in results.items()}
    return [row.as_json() for row in summarize(typed)]


def _conditions(content: dict[str, Any]) -> str:
    """What the figures hold for, as far as it is known."""
    settings: dict[str, Any] = next(iter(content["settings"].values()), {})
    about = [content.get("encoder"), content.get("model")]
    about += [_counted(settings["epochs"], "epoch")] if "epochs" in settings else []
    about += [f"{settings['pairs_per_batch']} pairs per batch"] if "pairs_per_batch" in settings else []
    about.append(_counted(content["seeds"], "seed"))
    model = ", ".join(part for part in about if part)
    spread = ", ± standard deviation, over random (R@1) ± standard error" if content["seeds"] > 1 else ""
    machine = content["machine"].get("gpu") or content["machine"].get("processor")
    side_by_side = f"{content['jobs']} runs at a time, so without times" if content["jobs"] > 1 else None
    where = ", ".join(part for part in (machine, side_by_side) if part)
    sentences = [content.get("description"), f"{model}; in points{spread}{f'; {where}' if where else ''}"]
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences if text)


def _so_far(run: Run) -> dict[str, Any] | None:
    """What the result would be if the run had ended here; None before it was evaluated."""
    evaluated = [epoch for epoch in run.epochs if all(name in epoch for name in METRICS)]
    if not evaluated:
        return None
    timed = [epoch for epoch in run.epochs[1:] if {"seconds", "mining_seconds"} <= set(epoch)]
    mining, seconds = (sum(epoch[name] for epoch in timed) for name in ("mining_seconds", "seconds"))
    return {
        "metrics": evaluated[-1],
        "seconds": sum(epoch.get("seconds", 0.0) for epoch in run.epochs),
        "mining_seconds_per_epoch": mining / len(timed) if timed else None,
        "mining_share": mining / seconds if seconds else None,
        "kept_bytes": run.epochs[-1].get("kept_bytes"),
        "config": {"seed": 0, **run.config},
    }


def _recall(row: dict[str, Any]) -> float:
    mean: float = row["recall@1"]["mean"]
    return mean


def _standard_error(*means: dict[str, Any]) -> float:
    """Of the difference of two means over independent seeds."""
    return math.sqrt(sum(each["sd"] ** 2 / len(each["values"]) for each in means))


def _mean_and_spread(metric: dict[str, Any] | None) -> str:
    if metric is None:
        return ""
    return f"{100 * metric['mean']:.2f}" + ("" if metric["sd"] is None else f" ±{100 * metric['sd']:.2f}")


def _gain(gain: dict[str, float] | None) -> str:
    return "" if gain is None else f"{100 * gain['mean']:+.2f} ±{100 * gain['standard_error']:.2f}"


def _mining(row: dict[str, Any]) -> str:
    seconds, share = row["mining_seconds_per_epoch"], row["mining_share"]
    parts = ([] if seconds is None else [f"{seconds:.2f} s"]) + ([] if share is None else [f"{share:.1%}"])
    return ", ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
