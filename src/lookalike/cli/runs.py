"""Shared by `lookalike train` and `lookalike compare`: options, where their values come from, and a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from lookalike.cli.parsing import ConfigFile, Device, Flag, Hint, Pairs, Positional, build
from lookalike.data import DataSource, data_set, data_sets
from lookalike.data.registry import data_names
from lookalike.training.recipes import Recipe, recipe
from lookalike.training.settings import PRESETS, Preset, Settings

if TYPE_CHECKING:
    from rich.console import Console

    from lookalike.training.comparison_results import ComparisonRow

T = TypeVar("T")
DEFAULT_DATA = "glyphs"
BY_DATA_SET = "by data set"
MODELS = ("convnet", "timm:", "transformers:", "sentence-transformers:")  # with the colon before the name of a model
TRACKERS = ("tensorboard", "wandb", "trackio")
NARROW = ("MAP@R", "R@1%", "nDCG@10", "R@10", "R@5", "MRR@10")  # columns to drop on a narrow terminal, in this order


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Data, model, device and output of one or several runs."""

    data: Positional[Annotated[str | None, Hint(default=DEFAULT_DATA, words=data_names)]] = None
    """Data set, as `lookalike data list` names it, or a file of glyphs, FILE.npz."""
    config: ConfigFile = None
    """Read options from this YAML file, as --print-config prints it; typed options take precedence."""
    print_config: Flag = False
    """Print all options as YAML for --config, and exit."""
    preset: Preset | None = None
    """Settings to start from: "paper" composes batches as the paper does, with one neighbourhood per batch and a random
    first epoch."""
    root: Path | None = None
    """Folder or file to read the data set from."""
    data_options: Pairs = field(default_factory=dict)
    """Option of the data set's reader, such as size=224."""
    model: Annotated[str | None, Hint(default=BY_DATA_SET, value="NAME", words=lambda: MODELS)] = None
    """Encoder: convnet, timm:NAME, transformers:NAME or sentence-transformers:NAME."""
    model_options: Pairs = field(default_factory=dict)
    """Option of the encoder, such as gradient_checkpointing=true."""
    device: Device = None
    """Device of torch, such as cpu or cuda."""
    report_to: Annotated[tuple[str, ...], Hint(default="none", value="NAME,NAME,...", words=lambda: TRACKERS)] = ()
    """Trackers to log to: tensorboard, wandb, trackio."""
    force: Flag = False
    """Overwrite what the output folder holds."""

    @property
    def source(self) -> DataSource:
        """The data set to load."""
        return DataSource(self.data or DEFAULT_DATA, None if self.root is None else str(self.root), self.data_options)

    @property
    def encoder(self) -> dict[str, Any]:
        """The arguments of `make_encoder`."""
        return ({} if self.model is None else {"encoder": self.model}) | self.model_options


def complete(options: type[T], layers: Sequence[Mapping[str, Any]], usual: Recipe, more: Mapping[str, Any]) -> T:
    """Merge a recipe, a configuration file and typed options into the options of a run.

    Args:
        options: Their dataclass, derived from `RunOptions`, with a group of `Settings`.
        layers: Options by name: those of the configuration file, then typed ones, which take precedence.
        usual: Values that no layer sets: the recipe of the data set, or the run to resume.
        more: Options by name to use if no layer sets them.
    """
    for preset in [layer["preset"] for layer in layers if layer.get("preset") is not None][-1:]:
        usual = usual.changed(PRESETS[preset], {})
    for layer in layers:
        settings = {each.name: layer[each.name] for each in fields(Settings) if each.name in layer}
        model, data = dict(layer.get("model_options", {})), layer.get("data_options", {})
        for values, taker, name, instead in ((model, "model", "encoder", "model"), (data, "data set", "root", "root")):
            if name in values:
                raise ValueError(f"{name} is not an option of the {taker}: give it with {instead}=.")
        if layer.get("model") is not None:
            model["encoder"] = _found(layer["model"])
        usual = usual.changed(asdict(Settings.from_dict(settings, usual.settings)), model, data)
    given = {**more, **{name: value for layer in layers for name, value in layer.items()}}
    if given.get("root") is not None:
        given["root"] = Path(given["root"]).expanduser().resolve()
    given |= asdict(usual.settings) | _of_model(usual) | {"data": data_name(given), "data_options": usual.data}
    return build(options, given)


def data_name(values: Mapping[str, Any]) -> str:
    """Return the name of the data set, or the absolute path of one, so that its run can be continued from anywhere.

    Raises:
        ValueError: There is no such data set.
    """
    name = values.get("data") or DEFAULT_DATA
    return name if data_set(name).suffix is None else str(Path(name).expanduser().resolve())


def _found(model: str) -> str:
    """Return an encoder with the absolute path of a local model, so that its run can be continued from anywhere."""
    kind, colon, name = model.partition(":")
    folder = Path(name).expanduser()
    return f"{kind}:{folder.resolve()}" if colon and folder.is_dir() else model


def defaults_shown(args: Sequence[str]) -> dict[str, Any]:
    """Return defaults for the help: those of the data set that the first argument names, or else "by data set"."""
    try:
        usual = recipe(args[0] if args else "")
    except ValueError:
        recipes = [asdict(recipe(name).settings) for name in data_sets()]
        return {name: BY_DATA_SET for name in recipes[0] if len({each[name] for each in recipes}) > 1}
    return asdict(usual.settings) | _of_model(usual) | {"data_options": usual.data}


def _of_model(usual: Recipe) -> dict[str, Any]:
    options = {name: value for name, value in usual.model.items() if name != "encoder"}
    return {"model": usual.model.get("encoder"), "model_options": options}


def print_whole(console: "Console", text: str) -> None:
    """Print a line that users may copy, with paths and commands unbroken."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def print_table(console: "Console", rows: "Sequence[ComparisonRow]") -> None:
    """Print as many columns as the terminal has room for."""
    from rich.table import Table

    from lookalike.training.comparison_results import HEADINGS

    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in lines) + 3 for i in range(len(HEADINGS))]
    shown = [i for i in range(len(HEADINGS)) if any(line[i] for line in lines[1:])]
    for heading in NARROW:
        if sum(widths[i] for i in shown) + 1 > console.width:
            shown = [i for i in shown if HEADINGS[i] != heading]
    table = Table(*(HEADINGS[i] for i in shown))
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for line in lines[1:]:
        table.add_row(*(line[i] for i in shown))
    console.print(table)
