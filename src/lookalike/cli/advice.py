"""Which strategy for a data set, on the screen: a table, a few sentences, and the command to type."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from lookalike.cli.options import options_of
from lookalike.cli.runs import RunOptions, complete, data_name, print_whole
from lookalike.training.recipes import recipe
from lookalike.training.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

    from lookalike.training.advice import Advice

MEASURES = ("k", "target", "max_bits", "sample")  # arguments of `advise`


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """What would be trained."""

    settings: Settings = field(default_factory=Settings)


def print_advice(source: str, typed: Mapping[str, Any]) -> None:
    """Measure a sample of a data set, and print what it says.

    Args:
        source: The data set, or the path of one.
        typed: What was typed, by name.

    Raises:
        ValueError: Something that was typed is impossible.
    """
    out = typed.get("out")
    if out is not None and out.exists() and not typed.get("force"):
        raise ValueError(f"{out} exists; --force overwrites it, --out chooses another file.")
    given = {**typed, "data": source}
    run = complete(TrainOptions, [given], recipe(data_name(given)), {})

    from rich.console import Console

    from lookalike.training.advice import advise
    from lookalike.utils.files import write_text

    console = Console()
    measures = {name: typed[name] for name in MEASURES if name in typed}
    advice = advise(run.source, run.settings, model=run.encoder, device=run.device, **measures)
    _print_sample(console, advice)
    _print_table(console, advice)
    console.print(advice.text, highlight=False)
    print_whole(console, f"\n{train_command(source, typed, run.settings, advice.settings)}")
    if out is not None:
        write_text(out, json.dumps(advice.as_dict(), indent=1) + "\n")
        print_whole(console, f"Written: {out}")


def _print_sample(console: "Console", advice: "Advice") -> None:
    things = "pairs" if advice.paired else "samples"
    n, population = advice.sample, advice.population
    scope = f"all {n:,} {things}" if n == population else f"{n:,} of {population:,} {things}"
    whole = "" if n == population else f"; all of them take about {advice.seconds * population / n:.0f} s"
    print_whole(console, f"{advice.data}: {scope}, embedded with {advice.model} in {advice.seconds:.1f} s{whole}.")
    if n < population:
        classes = "" if advice.whole_classes else " Classes are too large to draw whole: positives seem farther away."
        console.print(
            f"Ranks are scaled from all {population:,} {things} down to the sample, to 1 at least. Among all, mined "
            f"batches are harder and false negatives more frequent than shown.{classes}",
            highlight=False,
        )


def _print_table(console: "Console", advice: "Advice") -> None:
    from rich.table import Table

    table = Table("question", "measured", "choice")
    table.columns[1].justify = "right"
    chosen, false = advice.settings, advice.false_negatives
    k = next(iter(advice.plans.values())).k
    sections: list[tuple[list[tuple[str, str]], list[str]]] = [
        (
            [(f"positive beats {_ordinal(k)} negative", f"{each:.0%}") for k, each in advice.readiness.beats.items()],
            [f"warm start {chosen.warm_start}" if chosen.sampler == "lsh" else "", *_threshold(advice)],
        ),
        (
            [
                ("hardest in a random batch", f"cosine {advice.random.cosine:.3f}"),
                ("hardest in a mined batch", f"cosine {advice.mined.cosine:.3f}"),
                ("hardest of all", f"cosine {advice.hardest:.3f}"),
                ("nearest positive", f"cosine {advice.positive:.3f}"),
                ("hardest of all in random batch", f"{advice.random.finds_hardest:.1%}"),
                ("hardest of all in mined batch", f"{advice.mined.finds_hardest:.1%}"),
            ],
            [chosen.strategy, f"batches of {advice.pairs_per_batch}", *_neighbourhoods(chosen)],
        ),
        (
            [
                ("negative above 0.95 of positive", f"{false.near:.1%}"),
                ("negative above positive", f"{false.nearer:.1%}"),
                ("duplicate with another label", f"{false.identical:.1%}"),
            ],
            [
                "no guard" if chosen.guard is None else f"guard {chosen.guard:g}",
                "no mask_above" if chosen.mask_above is None else f"mask_above {chosen.mask_above:g}",
            ],
        ),
        (
            [
                (f"overlap@{k}, {advice.bits} bits, center {center:g}", _predicted(plan.predicted(advice.bits)))
                for center, plan in advice.plans.items()
            ]
            + [
                (f"overlap@{k}, {advice.bits} bits, scalar", _predicted(plan.predicted(advice.bits)))
                for plan in (advice.scalar,)
                if plan is not None
            ],
            [f"{chosen.bits} bits, center {chosen.center:g}"],
        ),
    ]
    for rows, choices in sections:
        for i, row in enumerate(rows):
            table.add_row(*row, choices[i] if i < len(choices) else "")
        table.add_section()
    console.print(table)


def _ordinal(k: int) -> str:
    return f"{k}{'st' if k == 1 else 'nd' if k % 10 == 2 else 'th'}"


def _predicted(prediction: tuple[float, float]) -> str:
    return f"{prediction[0]:.1%} ± {prediction[1]:.1%}"


def _threshold(advice: "Advice") -> list[str]:
    """Return, next to the rank that decides, from where on the model is ready."""
    from lookalike.analysis.readiness import DECISIVE_RANK, ENOUGH

    ranks = list(advice.readiness.beats)
    return [f"ready from {ENOUGH:.0%}" if rank == DECISIVE_RANK else "" for rank in ranks[1:]]


def _neighbourhoods(settings: Settings) -> list[str]:
    from lookalike.batches import neighbourhood_size

    if settings.sampler != "lsh" or settings.method != "growth":
        return []
    size = neighbourhood_size(settings.neighbourhood, settings.pairs_per_batch)
    return ["one neighbourhood each" if size >= settings.pairs_per_batch else f"neighbourhoods of {size}"]


def train_command(source: str, typed: Mapping[str, Any], before: Settings, chosen: Settings) -> str:
    """Return the command that trains as advised: what was typed for `plan`, and the settings that differ.

    Args:
        source: The data set.
        typed: What was typed for `plan`, by name.
        before: The settings without the advice.
        chosen: The settings as advised.
    """
    known, parts = options_of(TrainOptions), ["lookalike", "train", source]
    for name, value in typed.items():
        if name not in known or name in ("out", "force"):
            continue
        values = [f"{key}={_typed(each)}" for key, each in value.items()] if known[name].is_pairs else [str(value)]
        parts += [word for each in values for word in (known[name].flag, each)]
    if chosen.strategy != before.strategy:
        parts += ["--sampler", chosen.strategy]
    for each in fields(Settings):
        value = getattr(chosen, each.name)
        if each.name not in ("sampler", "bits") and value != getattr(before, each.name):
            parts += [known[each.name].flag, str(value)]
    return shlex.join(parts)


def _typed(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
