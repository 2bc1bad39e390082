"""`lookalike train` and `lookalike compare`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lookalike.cli.app import Device, Force, app

NAMED_OTHERWISE = {"encoder": "model", "root": "root"}  # what is no option of a reader or of a model
Data = Annotated[str | None, typer.Argument(help="A data set, or a file of glyphs.", show_default="glyphs")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Passes over the training set.", show_default="by data set")]
BatchSize = Annotated[int | None, typer.Option(min=2, help="Pairs per batch.", show_default="by data set")]
LearningRate = Annotated[float | None, typer.Option("--lr", help="The highest learning rate.", show_default="0.001")]
Hardness = Annotated[float | None, typer.Option(help="Share of hard negatives in a batch.", show_default="1")]
Guard = Annotated[
    float | None, typer.Option(help="Keep likely false negatives of lsh apart, as 0.95 does; less for more.")
]
TrackOverlap = Annotated[bool, typer.Option("--track-overlap", help="Measure every epoch what bits find.")]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(min=0, help="Epochs between evaluations; 0: none in between.", show_default="1, msmarco 0"),
]
Root = Annotated[Path | None, typer.Option(help="Where the data set is.", show_default=False)]
Model = Annotated[
    str | None,
    typer.Option(
        help="convnet, timm:NAME, transformers:NAME or sentence-transformers:NAME.", show_default="by data set"
    ),
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Of the model, such as gradient_checkpointing=true.", show_default=False),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Of the data set, such as size=224.", show_default=False),
]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print what would be trained as JSON, and stop.")]


@app.command()
def train(
    data: Data = None,
    root: Root = None,
    sampler: Annotated[
        str | None,
        typer.Option(help="random, batchhard, full, incremental, lsh, lsh:BITS or lsh:auto.", show_default="lsh"),
    ] = None,
    bits: Annotated[str | None, typer.Option(help="Length of the codes, or auto.", show_default="512")] = None,
    target_overlap: Annotated[
        float | None, typer.Option(help="Share of true neighbours that auto aims for.", show_default="0.5")
    ] = None,
    epochs: Epochs = None,
    pairs_per_batch: BatchSize = None,
    learning_rate: LearningRate = None,
    hardness: Hardness = None,
    guard: Guard = None,
    track_overlap: TrackOverlap = False,
    evaluate_every: EvaluateEvery = None,
    model: Model = None,
    model_option: ModelOption = None,
    data_option: DataOption = None,
    seed: Annotated[int | None, typer.Option(help="Of weights, batches and rotation.", show_default="0")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/DATA-SAMPLER-SEED")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Train this sampler too and compare; none for none.", show_default="random without DATA"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out, as it was begun.")] = False,
    keep_checkpoint: Annotated[
        bool, typer.Option("--keep-checkpoint", help="Keep the last checkpoint of a finished run.")
    ] = False,
    print_config: PrintConfig = False,
    force: Force = False,
    device: Device = None,
) -> None:
    """Train an embedding model with hard negatives; without DATA on glyphs, with random batches for comparison."""
    from lookalike.cli.commands import run_training

    settings = {
        "sampler": sampler,
        "bits": _bits(bits),
        "target_overlap": target_overlap,
        "epochs": epochs,
        "pairs_per_batch": pairs_per_batch,
        "learning_rate": learning_rate,
        "hardness": hardness,
        "guard": guard,
        "track_overlap": track_overlap or None,
        "evaluate_every": evaluate_every,
        "seed": seed,
    }
    if baseline is None and data is None and not resume:
        baseline = "random"
    run_training(
        data,
        root,
        _chosen(settings, model, model_option, data_option),
        out,
        baseline,
        print_config=print_config,
        resume=resume,
        force=force,
        keep_checkpoint=keep_checkpoint,
        device=device,
    )


@app.command()
def compare(
    data: Data = None,
    root: Root = None,
    samplers: Annotated[
        str, typer.Option(help="Comma-separated.")
    ] = "random,batchhard,full,incremental,lsh:128,lsh:512",
    seeds: Annotated[int, typer.Option(min=1, help="Runs per sampler.")] = 3,
    epochs: Epochs = None,
    pairs_per_batch: BatchSize = None,
    learning_rate: LearningRate = None,
    hardness: Hardness = None,
    guard: Guard = None,
    track_overlap: TrackOverlap = False,
    evaluate_every: EvaluateEvery = None,
    model: Model = None,
    model_option: ModelOption = None,
    data_option: DataOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs.", show_default="runs/compare-DATA")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time; more than one disturbs the times.")] = 1,
    print_config: PrintConfig = False,
    force: Force = False,
    device: Device = None,
) -> None:
    """Train with every sampler over several seeds and print the paper's table; unfinished runs are continued."""
    from lookalike.cli.commands import run_comparison

    settings = {
        "epochs": epochs,
        "pairs_per_batch": pairs_per_batch,
        "learning_rate": learning_rate,
        "hardness": hardness,
        "guard": guard,
        "track_overlap": track_overlap or None,
        "evaluate_every": evaluate_every,
    }
    run_comparison(
        data or "glyphs",
        root,
        samplers,
        seeds,
        _chosen(settings, model, model_option, data_option),
        out,
        print_config=print_config,
        jobs=jobs,
        force=force,
        device=device,
    )


def _chosen(
    settings: dict[str, Any], model: str | None, model_options: list[str] | None, data_options: list[str] | None
) -> dict[str, dict[str, Any]]:
    return {
        "settings": settings,
        "model": {
            **({} if model is None else {"encoder": _resolved(model)}),
            **_named("--model-option", model_options),
        },
        "data": _named("--data-option", data_options),
    }


def _named(option: str, texts: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE as a dictionary; values are numbers, true, false, lists or else text."""
    found = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or name in NAMED_OTHERWISE:
            other = f"; {name} is --{NAMED_OTHERWISE[name]}" if name in NAMED_OTHERWISE else ""
            raise ValueError(f"{option} takes NAME=VALUE, such as size=224, got {text!r}{other}.")
        words = {"true": True, "false": False, "none": None, "null": None}
        try:
            found[name] = words[value.lower()] if value.lower() in words else json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def _resolved(model: str) -> str:
    """A model in a local folder by its whole path, so that a run can be continued from anywhere."""
    kind, colon, name = model.partition(":")
    folder = Path(name).expanduser()
    return f"{kind}:{folder.resolve()}" if colon and folder.is_dir() else model


def _bits(text: str | None) -> int | str | None:
    if text is None or text == "auto":
        return text
    if not text.isdigit():
        raise ValueError(f"--bits takes a number, such as 512, or auto, got {text!r}.")
    return int(text)


def main(args: list[str]) -> None:
    """Run the old command."""
    from lookalike.cli.app import bridge

    bridge(["train", *args])
