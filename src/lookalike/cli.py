"""The command line. Heavy imports happen inside the commands, so that `lookalike --help` answers at once."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lookalike import __version__
from lookalike.files import DiskFullError

app = typer.Typer(
    name="lookalike",
    help="Hard negatives for contrastive learning, found in bits.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lookalike {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    pass


@app.command()
def demo(
    n: Annotated[int, typer.Option(min=2, help="Number of embeddings.")] = 20_000,
    dim: Annotated[int, typer.Option(min=1, help="Their dimension.")] = 256,
    k: Annotated[int, typer.Option(min=1, help="Hard negatives per embedding.")] = 128,
    bits: Annotated[str, typer.Option(help="Code lengths, multiples of 8, comma-separated.")] = "128,256,512,1024",
    seed: Annotated[int, typer.Option(help="Seed of embeddings and rotation.")] = 0,
) -> None:
    """Make embeddings, find their hard negatives in bits and exactly, and show overlap, time and memory."""
    lengths = _integers("--bits", bits)
    from lookalike.demo import run_demo

    run_demo(n, dim, k, lengths, seed)


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
    typer.Option(min=0, help="Epochs between evaluations; 0: after the last.", show_default="1, msmarco 0"),
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
Device = Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="a GPU if there is one")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what the output folder holds.")]


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
    batch_size: BatchSize = None,
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
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, as it was begun.")] = False,
    print_config: PrintConfig = False,
    force: Force = False,
    device: Device = None,
) -> None:
    """Train an embedding model with hard negatives; without DATA on glyphs, with random batches for comparison."""
    from lookalike.commands import run_training

    settings = {
        "sampler": sampler, "bits": _bits(bits), "target_overlap": target_overlap, "epochs": epochs,
        "batch_size": batch_size, "learning_rate": learning_rate, "hardness": hardness, "guard": guard,
        "track_overlap": track_overlap or None, "evaluate_every": evaluate_every, "seed": seed,
    }  # fmt: skip
    if baseline is None and data is None and not resume:
        baseline = "random"
    run_training(
        data, root, _chosen(settings, model, model_option, data_option), out, baseline, print_config=print_config,
        resume=resume, force=force, device=device,
    )  # fmt: skip


@app.command()
def compare(
    data: Data = None,
    root: Root = None,
    samplers: Annotated[
        str, typer.Option(help="Comma-separated.")
    ] = "random,batchhard,full,incremental,lsh:128,lsh:512",
    seeds: Annotated[int, typer.Option(min=1, help="Runs per sampler.")] = 3,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
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
    """Train with every sampler over several seeds and print the paper's table; begun runs are gone on with."""
    from lookalike.commands import run_comparison

    settings = {
        "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "hardness": hardness,
        "guard": guard, "track_overlap": track_overlap or None, "evaluate_every": evaluate_every,
    }  # fmt: skip
    run_comparison(
        data or "glyphs", root, samplers, seeds, _chosen(settings, model, model_option, data_option), out,
        print_config=print_config, jobs=jobs, force=force, device=device,
    )  # fmt: skip


@app.command()
def analyze(
    source: Annotated[Path, typer.Argument(help="Embeddings (.npy, .npz, .safetensors, .parquet) or a run's folder.")],
    labels: Annotated[Path | None, typer.Option(help="Labels, .npy or one per line.")] = None,
    bits: Annotated[str, typer.Option(help="Code lengths, comma-separated.")] = "128,256,512,1024",
    k: Annotated[int, typer.Option(min=1, help="Hard negatives per anchor.")] = 128,
    anchors: Annotated[int, typer.Option(min=2, help="How many are compared with exact search.")] = 1000,
    out: Annotated[Path | None, typer.Option(help="Result.", show_default="analysis.json by the source")] = None,
    force: Force = False,
) -> None:
    """Show what bits find of the true hard negatives: overlap, places, similarity, bounds, other codes, speed."""
    lengths = tuple(_integers("--bits", bits))
    from lookalike.analysis.command import run_analysis

    run_analysis(source, labels, lengths, k, anchors, out, force=force)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, comparisons or analyses.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    gallery: Annotated[bool, typer.Option(help="Load data and model, to show what the model confuses.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out even if it is no report.")] = False,
) -> None:
    """Show runs on one page that opens from disk: tables, curves, what the bits keep, and a gallery of lookalikes."""
    from lookalike.report import make_report

    content = make_report(runs, out, gallery=gallery, force=force, progress=True)
    for notice in content.notices:
        typer.echo(notice)
    for what, command in content.missing:
        typer.echo(f"Missing: {what} ({command})")
    typer.echo(f"Written: {out} ({out.stat().st_size / 1e3:,.0f} kB)")


@app.command()
def plan(
    embeddings: Annotated[
        str | None,
        typer.Argument(
            help="FILE.npy, .npz, .safetensors or .parquet; FILE:NAME of several arrays.", show_default=False
        ),
    ] = None,
    k: Annotated[int, typer.Option(min=1, help="Hard negatives per sample.")] = 128,
    target: Annotated[float, typer.Option(help="Share of the true k nearest to find.")] = 0.5,
    n: Annotated[
        int | None, typer.Option(min=2, help="Samples to be searched.", show_default="those in the file")
    ] = None,
    max_bits: Annotated[int, typer.Option(help="Longest codes to consider.")] = 1024,
    seed: Annotated[int, typer.Option(help="Of the rotation and of the rows that are looked at.")] = 0,
    eps: Annotated[float | None, typer.Option(help="Without a file: angle of a near sample, share of pi.")] = None,
    a: Annotated[float | None, typer.Option("--a", help="Ratio of the angle of far samples to eps.")] = None,
    f: Annotated[float, typer.Option("--f", help="One in so many anchors may get a far sample first.")] = 10.0,
) -> None:
    """Say how many bits it takes: for a share of the true neighbours, or (--eps, --a, --n) to keep an order."""
    from lookalike.planning import run_order_plan, run_plan

    if embeddings is not None and eps is None and a is None:
        run_plan(embeddings, k=k, target=target, n=n, max_bits=max_bits, seed=seed)
    elif embeddings is None and eps is not None and a is not None and n is not None:
        run_order_plan(eps, a, n, f)
    else:
        raise ValueError("give either a file of embeddings or --eps, --a and --n.")


NEGATIVES, SEARCH, TEXTS, EMBEDDINGS = "Which negatives", "Search", "Texts", "Embeddings"  # in the help


@app.command()
def mine(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="Pairs of texts: .jsonl, .parquet, .tsv, .csv, or a data set's folder or name.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A sentence-transformers model: folder or name.", show_default=False, rich_help_panel=TEXTS),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help=".jsonl or .parquet; of embeddings .npy or .parquet.", show_default=False),
    ] = None,
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="triplet, n-tuple, labeled-pair, labeled-list, flagembedding or tevatron.",
            rich_help_panel=TEXTS,
        ),
    ] = "triplet",
    scores: Annotated[bool, typer.Option("--scores", help="Write scores as well.", rich_help_panel=TEXTS)] = False,
    num_negatives: Annotated[int, typer.Option(help="Negatives per query.", rich_help_panel=NEGATIVES)] = 3,
    range_min: Annotated[int, typer.Option(help="Skip so many of the nearest.", rich_help_panel=NEGATIVES)] = 0,
    range_max: Annotated[
        int | None, typer.Option(help="Look at so many.", show_default="what filters need", rich_help_panel=NEGATIVES)
    ] = None,
    max_score: Annotated[float | None, typer.Option(help="Drop what scores higher.", rich_help_panel=NEGATIVES)] = None,
    min_score: Annotated[float | None, typer.Option(help="Drop what scores lower.", rich_help_panel=NEGATIVES)] = None,
    absolute_margin: Annotated[
        float | None, typer.Option(help="Stay so far below the positive.", rich_help_panel=NEGATIVES)
    ] = None,
    relative_margin: Annotated[
        float | None, typer.Option(help="Likewise, as a share of its score.", rich_help_panel=NEGATIVES)
    ] = None,
    sampling: Annotated[
        str, typer.Option(help="top or random ones of what is left.", rich_help_panel=NEGATIVES)
    ] = "top",
    seed: Annotated[int, typer.Option(help="Of random ones.", rich_help_panel=NEGATIVES)] = 0,
    bits: Annotated[int, typer.Option(help="Length of the codes.", rich_help_panel=SEARCH)] = 512,
    rescore: Annotated[
        bool, typer.Option(help="Score a shortlist with floats; else bits alone.", rich_help_panel=SEARCH)
    ] = True,
    oversampling: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Length of that shortlist, in candidates.",
            show_default="4, at least 64",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    anchor_column: Annotated[
        str | None, typer.Option(help="Queries.", show_default="by name", rich_help_panel=TEXTS)
    ] = None,
    positive_column: Annotated[
        str | None, typer.Option(help="Positives.", show_default="by name", rich_help_panel=TEXTS)
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Of a data set.", show_default="train", rich_help_panel=TEXTS)
    ] = None,
    corpus: Annotated[str | None, typer.Option(help="Further texts: .txt, or a table.", rich_help_panel=TEXTS)] = None,
    corpus_column: Annotated[
        str | None, typer.Option(help="Their column.", show_default="text", rich_help_panel=TEXTS)
    ] = None,
    cross_encoder: Annotated[
        str | None, typer.Option(help="Filter by the scores of this model.", rich_help_panel=NEGATIVES)
    ] = None,
    query_prompt: Annotated[str | None, typer.Option(help="Stands before queries.", rich_help_panel=TEXTS)] = None,
    query_prompt_name: Annotated[
        str | None, typer.Option(help="Or a prompt of the model's.", rich_help_panel=TEXTS)
    ] = None,
    corpus_prompt: Annotated[
        str | None, typer.Option(help="Stands before the texts searched.", rich_help_panel=TEXTS)
    ] = None,
    corpus_prompt_name: Annotated[
        str | None, typer.Option(help="Or a prompt of the model's.", rich_help_panel=TEXTS)
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts encoded at a time.", rich_help_panel=TEXTS)] = 32,
    device: Device = None,
    cache_folder: Annotated[
        Path | None,
        typer.Option(
            help="Keep what is encoded.", show_default="OUTPUT.cache, until it is written", rich_help_panel=TEXTS
        ),
    ] = None,
    embeddings: Annotated[
        str | None,
        typer.Option(
            help="Instead of INPUT: a file of embeddings, larger than memory if .npy.", rich_help_panel=EMBEDDINGS
        ),
    ] = None,
    corpus_embeddings: Annotated[
        str | None, typer.Option(help="Search these; by default themselves.", rich_help_panel=EMBEDDINGS)
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Of embeddings: .npy or one per line.", rich_help_panel=EMBEDDINGS)
    ] = None,
    positives: Annotated[
        Path | None, typer.Option(help="Of embeddings: rows that are positives, .npy.", rich_help_panel=EMBEDDINGS)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
) -> None:
    """Find hard negatives of pairs of texts with a model, or of embeddings; rows to train on, and a summary."""
    if embeddings is None:
        of_embeddings = {"--corpus-embeddings": corpus_embeddings, "--labels": labels, "--positives": positives}
        _refuse_ignored("--embeddings", of_embeddings)
    else:
        of_texts = {
            "--model": model, "--anchor-column": anchor_column, "--positive-column": positive_column, "--split": split,
            "--corpus": corpus, "--corpus-column": corpus_column, "--cross-encoder": cross_encoder,
            "--query-prompt": query_prompt, "--query-prompt-name": query_prompt_name, "--corpus-prompt": corpus_prompt,
            "--corpus-prompt-name": corpus_prompt_name, "--cache-folder": cache_folder, "--scores": scores or None,
            "--format": None if output_format == "triplet" else output_format,
        }  # fmt: skip
        _refuse_ignored("INPUT", of_texts)
    if output is None:
        raise ValueError("mining needs --output: the file to write.")
    if (source is None) == (embeddings is None):
        raise ValueError("give either INPUT, pairs of texts, or --embeddings.")
    from lookalike.mining.command import TextSource, VectorSource, run_text_mining, run_vector_mining
    from lookalike.mining.options import Options

    options = Options(
        num_negatives=num_negatives, range_min=range_min, range_max=range_max, max_score=max_score,
        min_score=min_score, absolute_margin=absolute_margin, relative_margin=relative_margin,
        sampling_strategy=sampling, bits=bits, rescore=(oversampling or True) if rescore else False,
    )  # fmt: skip
    if embeddings is not None:
        vectors = VectorSource(
            embeddings=embeddings, corpus=corpus_embeddings, labels=labels, positives=positives, device=device
        )
        run_vector_mining(vectors, options, output, seed=seed, force=force)
        return
    if source is None or model is None:
        raise ValueError("mining from texts needs --model: a folder or name that SentenceTransformer loads.")
    texts = TextSource(
        source=source, model=model, anchor_column=anchor_column, positive_column=positive_column, split=split,
        corpus=corpus, corpus_column=corpus_column, cross_encoder=cross_encoder, query_prompt=query_prompt,
        query_prompt_name=query_prompt_name, corpus_prompt=corpus_prompt, corpus_prompt_name=corpus_prompt_name,
        batch_size=batch_size, device=device, cache_folder=cache_folder,
    )  # fmt: skip
    run_text_mining(texts, options, output, output_format, scores=scores, seed=seed, force=force)


bench = typer.Typer(help="Measure on this machine; results go to benchmarks/results.", no_args_is_help=True)
app.add_typer(bench, name="bench")
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@bench.command("search", context_settings=PASSED_ON)
def bench_search(
    context: typer.Context,
    device: Annotated[str, typer.Option(help="cpu: against FAISS; cuda: against exact.")] = "cpu",
) -> None:
    """Hamming search against its peers; further options as in `python -m benchmarks.search` or `search_gpu`."""
    modules = {"cpu": "search", "cuda": "search_gpu"}
    if device not in modules:
        raise ValueError(f"--device must be one of {', '.join(modules)}, got {device!r}.")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ValueError("--device cuda needs an NVIDIA GPU that torch can use, and there is none here.")
    _benchmark(modules[device], context.args)


@bench.command("batches", context_settings=PASSED_ON)
def bench_batches(context: typer.Context) -> None:
    """Composition of batches against the published shuffle."""
    _benchmark("batches", context.args)


data_sets = typer.Typer(help="Data sets to train on.", no_args_is_help=True)
app.add_typer(data_sets, name="data")


@data_sets.command("list")
def data_list() -> None:
    """Show what can be trained on."""
    from lookalike.data import DATA_SETS

    for name, about in DATA_SETS.items():
        typer.echo(f"{name:<14} {about}")


@data_sets.command("check")
def data_check(
    name: Annotated[str, typer.Argument(help="A data set, as in `lookalike data list`.")],
    root: Annotated[Path | None, typer.Argument(help="Its folder or file.", show_default=False)] = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image, not only look for it.")] = False,
    sheet: Annotated[
        Path | None, typer.Option(help="The contact sheet.", show_default="contact-sheet-NAME.png")
    ] = None,
) -> None:
    """Compare a data set with its official counts and show a dozen pairs; fails if something is missing."""
    from lookalike.commands import run_data_check

    if not run_data_check(name, root, decode, sheet):
        raise typer.Exit(1)


def _benchmark(name: str, arguments: list[str]) -> None:
    """Run a benchmark of the repository, which an installed wheel does not have."""
    import importlib

    import lookalike

    repository = Path(lookalike.__file__).resolve().parents[2]
    if not (repository / "benchmarks").is_dir():
        raise ValueError(
            "benchmarks are not part of the package: run them from a clone, installed with pip install -e ."
        )
    sys.path.insert(0, str(repository))
    command = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    command.command()(importlib.import_module(f"benchmarks.{name}").main)
    command(arguments, standalone_mode=False)


def _chosen(
    settings: dict[str, Any], model: str | None, model_options: list[str] | None, data_options: list[str] | None
) -> dict[str, dict[str, Any]]:
    return {
        "settings": settings,
        "model": {"encoder": model, **_named("--model-option", model_options)},
        "data": _named("--data-option", data_options),
    }


def _named(option: str, texts: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE as a dictionary; values are numbers, true, false, lists or else text."""
    found = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{option} takes NAME=VALUE, such as size=224, got {text!r}.")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def _refuse_ignored(owner: str, options: Mapping[str, object]) -> None:
    """Options that would be ignored because what they belong to was not given."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} belongs to {owner}, which was not given.")


def _bits(text: str | None) -> int | str | None:
    if text is None or text == "auto":
        return text
    if not text.isdigit():
        raise ValueError(f"--bits takes a number, such as 512, or auto, got {text!r}.")
    return int(text)


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} takes integers with commas between them, such as 128,512, got {text!r}.") from None


def main() -> None:
    """Run the command line; what the user got wrong is said in one line, without a traceback."""
    try:
        app()
    except (ValueError, TypeError, FileNotFoundError, ImportError, DiskFullError) as error:
        typer.secho(f"lookalike: {error}", fg="red", err=True)
        sys.exit(2)
