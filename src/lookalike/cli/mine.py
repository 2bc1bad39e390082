"""`lookalike mine`: from pairs of texts and a model, or from embeddings, to a file of negatives and a summary."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from lookalike.cli.config import print_config, read_config
from lookalike.cli.options import flatten, options_of
from lookalike.cli.parsing import ConfigFile, Device, Flag, Hint, Positional, Without, build, parse_typed
from lookalike.mining import Format, Search, Selection, UnfinishedError
from lookalike.negatives import Filters
from lookalike.utils.checks import check_choice, checked_positive

if TYPE_CHECKING:
    from lookalike.mining.engines import Engine

INTERRUPTED = 130  # what a shell returns for a command that Ctrl-C ended
READ_HERE = ("model", "columns", "header", "split", "corpus", "corpus_column", "corpus_header", "judge")


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What to read, how to encode it, and what to write."""

    model: str | None = None
    """A sentence-transformers model: its folder or name; the folder of a run of `lookalike train`; or
    package.module:function, which turns a list of texts into embeddings."""
    columns: Annotated[str | None, Hint(value="QUERY,POSITIVE", default="by name")] = None
    """Columns of INPUT."""
    header: bool = True
    """The first line of INPUT (.csv, .tsv) names its columns; without a header, they are called 1, 2, ..."""
    split: Annotated[str | None, Hint(default="train")] = None
    """Split of a data set."""
    corpus: str | None = None
    """Further texts to search: .txt with one per line, or a table."""
    corpus_column: Annotated[str | None, Hint(default="by name")] = None
    """Column of the corpus."""
    corpus_header: bool = True
    """The first line of the corpus (.csv, .tsv) names its columns."""
    cross_encoder: str | None = None
    """Filter by the scores of this cross-encoder: its folder or name."""
    query_prompt: str | None = None
    """Prompt for queries."""
    query_prompt_name: str | None = None
    """Name of one of the model's prompts, for queries."""
    corpus_prompt: str | None = None
    """Prompt for the texts to search."""
    corpus_prompt_name: str | None = None
    """Name of one of the model's prompts, for the texts to search."""
    batch_size: int = 32
    """Texts to encode at a time."""
    cache_folder: Annotated[Path | None, Hint(default="OUTPUT.cache, until OUTPUT is complete")] = None
    """Folder for the cache of encoded texts."""
    output_format: Format = "triplet"
    """Format of a row: triplet, n-tuple, labeled-pair, labeled-list, flagembedding or tevatron."""
    output_scores: bool = False
    """Write scores as well."""
    judge: str | None = None
    """Let this cross-encoder (folder or name), or package.module:function, decide about candidates that are as near to
    the query as its positives; those that it takes for positives are dropped, and written to a file of their own."""
    judge_margin: float = 0.05
    """Let the judge see candidates that score at most this much below the query's lowest positive."""

    def __post_init__(self) -> None:
        check_choice("output_format", self.output_format, get_args(Format))
        checked_positive("batch_size", self.batch_size)


@dataclass(frozen=True, kw_only=True)
class Embeddings:
    """What to read instead of INPUT."""

    embeddings: str | None = None
    """Embeddings (.npy, .npz, .safetensors, .parquet), or shards of them (.npy, .parquet): a folder or a pattern."""
    reference: Annotated[str | None, Hint(default="the embeddings themselves")] = None
    """Embeddings to find negatives in."""
    labels: Path | None = None
    """Labels of the embeddings: .npy, or one per line."""
    positives: Path | None = None
    """Positives of each embedding, instead of labels: a .npy of row numbers in the reference."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Who does the work."""

    block: Annotated[
        int | None, Hint(default="131072, 524288 from 16 million queries on, fewer if one has over 64 positives")
    ] = None
    """Rows to encode, search and finish at a time; a run that is killed loses at most the block it was working on."""
    shard: Annotated[str | None, Hint(value="I/N")] = None
    """Do share I of N, for example as task I of a SLURM array, and keep the results beside the output for --merge."""
    merge: Flag = False
    """Write the output, once all shards are done."""
    ray: Annotated[str | None, Hint(value="ADDRESS")] = None
    """Run on the Ray cluster at this address; auto finds the one that is running, or starts one on this machine."""
    ray_cpus: int = 1
    """Processors for each cell on Ray."""
    dry_run: Flag = False
    """Mine nothing; estimate cells, memory, disk and time from a few rows, and print them."""

    def __post_init__(self) -> None:
        if self.block is not None:
            checked_positive("block", self.block)
        checked_positive("ray_cpus", self.ray_cpus)
        chosen = [f"--{name.replace('_', '-')}" for name in ("shard", "merge", "ray", "dry_run") if getattr(self, name)]
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(chosen)} exclude each other; give one of them.")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `lookalike mine`."""

    input: Positional[str | None] = None
    """Pairs of texts: .jsonl, .json, .parquet, .tsv, .csv; a pattern or a folder of such files; or a data set, by its
    folder or name."""
    output: Path | None = None
    """File to write: .jsonl or .parquet, or a folder with a card, without a suffix; for embeddings .npy or .parquet."""
    same: Annotated[Path | None, Hint(value="FILE")] = None
    """Pairs of rows that are the same, as `lookalike explore` writes them: never negatives of each other. Row numbers
    of INPUT or of the embeddings; with --corpus or --reference, the second is a row of those. .jsonl, .csv, .tsv or
    .npy."""
    force: Flag = False
    """Overwrite the output."""
    device: Device = None
    """Device of torch, such as cpu or cuda."""
    config: ConfigFile = None
    """Read options from this YAML file, as --print-config prints it; typed options take precedence."""
    print_config: Flag = False
    """Print all options as YAML for --config, and exit."""
    texts: Texts = field(default_factory=Texts)
    embeddings: Embeddings = field(default_factory=Embeddings)
    selection: Selection = field(default_factory=Selection)
    filters: Annotated[Filters, Without("exclude")] = field(default_factory=Filters)
    search: Search = field(default_factory=Search)
    work: Work = field(default_factory=Work)


def main(args: list[str]) -> None:
    """Find hard negatives for pairs of texts with a model, or for embeddings; write them, and a summary beside them."""
    typed = parse_typed(Options, args, "mine", main.__doc__)
    options = build(Options, {**read_config(typed.get("config"), Options), **typed})
    if options.print_config:
        print_config(options)
        return
    _check(options)
    mined = options.embeddings.embeddings or f"{options.input} with {options.texts.model}"
    print(f"Mining hard negatives for {mined} -> {options.output}", flush=True)  # before imports that take seconds
    try:
        if options.input is None:
            _mine_embeddings(options)
        else:
            _mine_texts(options)
        if options.work.shard is not None:
            print(f"Shard {options.work.shard} is done. When all are, write the output with --merge.")
    except UnfinishedError as unfinished:
        if options.work.shard is None:
            raise
        print(unfinished)
    except KeyboardInterrupt as stopped:
        print(f"\n{str(stopped) or 'Interrupted before anything was encoded: nothing new is kept.'}")
        sys.exit(INTERRUPTED)


def _check(options: Options) -> None:
    """Refuse options that are missing, or that would have no effect."""
    known = options_of(Options)
    changed = [name for name, value in flatten(options).items() if value != known[name].default]
    owner, ignored = "--embeddings", [name for name in changed if known[name].group == "embeddings"]
    if options.embeddings.embeddings is not None:
        owner, ignored = "INPUT", [n for n in changed if known[n].group == "texts" or n == "include_positives"]
    if ignored:
        raise ValueError(f"{known[ignored[0]].flag} belongs to {owner}, which was not given.")
    if options.texts.corpus is None and options.texts.corpus_column is not None:
        raise ValueError("--corpus-column belongs to --corpus, which was not given.")
    if options.texts.judge is None and "judge_margin" in changed:
        raise ValueError("--judge-margin belongs to --judge, which was not given.")
    if options.work.ray is None and "ray_cpus" in changed:
        raise ValueError("--ray-cpus belongs to --ray, which was not given.")
    if options.output is None:
        raise ValueError("mining needs --output: the file to write.")
    if (options.input is None) == (options.embeddings.embeddings is None):
        raise ValueError("give either INPUT, pairs of texts, or --embeddings.")
    if options.input is not None and options.texts.model is None:
        raise ValueError("mining from texts needs --model: the folder or name of a SentenceTransformer.")


def _engine(work: Work) -> "Engine | None":
    from lookalike.mining.engines import Merge, Shard

    if work.shard is not None:
        return Shard.parse(work.shard)
    if work.merge:
        return Merge()
    if work.ray is not None:
        from lookalike.mining.engines.on_ray import OnRay

        return OnRay(work.ray, work.ray_cpus)
    if work.dry_run:
        from lookalike.mining.estimating import DryRun

        return DryRun()
    return None


def _mine_texts(options: Options) -> None:
    from dataclasses import replace

    from lookalike.mining.formats import has_folders, output_suffixes
    from lookalike.mining.models import as_model
    from lookalike.mining.outputs import checked_output
    from lookalike.mining.sources import check_models
    from lookalike.mining.text_sources import open_corpus, open_pairs
    from lookalike.mining.texts import mine_hard_negatives

    texts = options.texts
    suffixes, folders = output_suffixes(texts.output_format), has_folders(texts.output_format)
    checked_output(options.output, suffixes, force=options.force, folders=folders)
    model, judge = _model(str(texts.model), options.device), texts.judge
    if judge is not None and _is_imported(judge):
        judge = _imported(judge)
    check_models(as_model(model), (texts.cross_encoder, judge), options.device)
    corpus = None
    if texts.corpus is not None:
        corpus = open_corpus(texts.corpus, texts.corpus_column, header=texts.corpus_header)
    pairs = open_pairs(str(options.input), texts.columns, texts.split, header=texts.header)
    if not texts.header:
        pairs = replace(pairs, named=("anchor", "positive"))
    values, known = flatten(options), options_of(Options)
    arguments = {
        n: v for n, v in values.items() if known[n].group not in (None, "embeddings", "work") and n not in READ_HERE
    }
    mine_hard_negatives(
        pairs,
        model,
        corpus=corpus,
        same=options.same,
        device=options.device,
        output=options.output,
        force=options.force,
        source={n: v for n, v in values.items() if n in ("input", "same") or known[n].group == "texts"},
        block=options.work.block,
        engine=_engine(options.work),
        **{**arguments, "judge": judge},
    )


def _model(name: str, device: str | None) -> Any:
    """Return the model of a run, or what a name imports; leave other names to sentence-transformers."""
    from lookalike.training.run_folder import CONFIG, RunFolder

    if (Path(name) / CONFIG).is_file():
        from lookalike.mining.models import AnyEncoder, OfImages
        from lookalike.training.encoders.images import ImageEncoder
        from lookalike.training.export_formats import image_size
        from lookalike.training.models import load_model

        model = load_model(name, device=device)
        if isinstance(model, ImageEncoder):
            size = image_size(model, RunFolder(Path(name)).read_config())
            if size is None:
                raise ValueError(f"{name} does not say how large its images were, so none can be read for it.")
            return AnyEncoder(OfImages(model, (size[1], size[2])), f"run {name}")
        return AnyEncoder(model, f"run {name}")
    return _imported(name) if _is_imported(name) else name


def _is_imported(name: str) -> bool:
    return ":" in name and not Path(name).exists()


def _imported(name: str) -> Any:
    from lookalike.mining.models import imported

    sys.path.insert(0, "")  # the user's own modules are in the folder where the command runs
    return imported(name)


def _mine_embeddings(options: Options) -> None:
    from lookalike.mining.embeddings import mine_embeddings

    selection, given = options.selection, options.embeddings
    mine_embeddings(
        given.embeddings,
        given.reference,
        labels=given.labels,
        positives=given.positives,
        same=options.same,
        num_negatives=selection.num_negatives,
        filters=options.filters,
        sampling_strategy=selection.sampling_strategy,
        seed=selection.seed,
        **vars(options.search),
        device=options.device,
        output=options.output,
        force=options.force,
        block=options.work.block,
        engine=_engine(options.work),
    )
