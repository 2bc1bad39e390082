"""Declare the options of a command as a dataclass; `lookalike.cli.parsing` shows one."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tyro.conf import FlagCreatePairsOff, Positional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = [
    "ConfigFile",
    "Device",
    "Flag",
    "Hint",
    "Option",
    "Pairs",
    "Positional",
    "Without",
    "build",
    "flatten",
    "options_of",
]

T = TypeVar("T")
UNIONS = (Union, UnionType)
VALUES = {int: "INT", float: "FLOAT", Path: "PATH", str: "TEXT"}  # in the help
LONGEST_VALUE = 20  # characters
EXPECTED = {  # in errors
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    Path: "a path",
    dict: "names with values",
}


@dataclass(frozen=True, kw_only=True)
class Hint:
    """Set what help and shells show for an option, by annotation: `Annotated[int, Hint(default="by data set")]`."""

    default: str | None = None
    """The default to show, if the declared one does not say enough."""
    value: str | None = None
    """The placeholder for the value, if its type does not say enough."""
    words: Callable[[], Iterable[str]] | None = None
    """Values that a shell completes, if its type does not say enough."""


class Without:
    """Leave fields out of a group, in an annotation: `Annotated[Settings, Without("seed")]`."""

    def __init__(self, *names: str) -> None:
        self.names = names


class _Once:
    """Mark an option that belongs to a single call and cannot be set in a configuration file."""


Flag = Annotated[bool, FlagCreatePairsOff, _Once]
Pairs = Annotated[dict[str, Any], "NAME=VALUE"]
ConfigFile = Annotated[Path | None, _Once]
Device = Annotated[
    str | None, Hint(default="a GPU if there is one", value="NAME", words=lambda: ("cpu", "cuda", "mps"))
]


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option as its dataclass declares it."""

    name: str
    annotation: Any
    help: str
    default: Any
    """`MISSING` if the option is required."""
    group: str | None
    """The field that holds the group it belongs to."""

    @property
    def is_required(self) -> bool:
        """Whether it is required."""
        return self.default is MISSING

    @property
    def is_positional(self) -> bool:
        """Whether it is typed without its name."""
        return Positional in self._markers

    @property
    def is_flag(self) -> bool:
        """Whether it is typed without a value and cannot be negated."""
        return FlagCreatePairsOff in self._markers

    @property
    def in_config(self) -> bool:
        """Whether a configuration file may hold it."""
        return _Once not in self._markers

    @property
    def hint(self) -> Hint:
        """What the help shows for it."""
        return next((each for each in self._markers if isinstance(each, Hint)), Hint())

    @property
    def is_pairs(self) -> bool:
        """Whether it is typed as NAME=VALUE, any number of times."""
        return bool(self.annotation == Pairs)

    @property
    def is_tuple(self) -> bool:
        """Whether it takes several values."""
        return get_origin(_bare(self.annotation)) is tuple

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that its value may have, or each of the values of a list."""
        kind = _bare(self.annotation)
        if get_origin(kind) is tuple:
            kind = get_args(kind)[0]
        kinds = get_args(kind) if get_origin(kind) in UNIONS else (kind,)
        return tuple(str if get_origin(each) is Literal else get_origin(each) or each for each in kinds)

    @property
    def expected(self) -> str:
        """The types that its value may have, in words."""
        kinds = [kind for kind in EXPECTED if kind in self.kinds and not (kind is str and self.choices)]
        return " or ".join([*(EXPECTED[kind] for kind in kinds), *self.choices])

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that its value may be."""
        kind = _bare(self.annotation)
        kinds = get_args(kind) if get_origin(kind) in UNIONS else (kind,)
        return tuple(word for each in kinds if get_origin(each) is Literal for word in get_args(each))

    @property
    def words(self) -> tuple[str, ...]:
        """The values that a shell completes; there may be others."""
        return self.choices if self.hint.words is None else tuple(self.hint.words())

    @property
    def value_shown(self) -> str | None:
        """The placeholder for its value in the help; None for booleans."""
        if self.hint.value is not None or bool in self.kinds:
            return self.hint.value
        if self.is_pairs:
            return "NAME=VALUE"
        if self.is_positional:
            return self.flag if self.is_required else f"[{self.flag}]"
        kinds = [kind for kind in VALUES if kind in self.kinds and not (kind is str and self.choices)]
        shown = "|".join([*(VALUES[kind] for kind in kinds), *self.choices])
        shown = "NAME" if len(shown) > LONGEST_VALUE else shown
        return f"{shown},{shown},..." if self.is_tuple else shown

    def default_shown(self, defaults: Mapping[str, Any]) -> str:
        """Return the default as the help shows it; empty if there is nothing to say.

        Args:
            defaults: Defaults by name that replace declared ones.
        """
        default = defaults.get(self.name, self.default if self.hint.default is None else self.hint.default)
        if default is None or default is MISSING:
            return ""
        if isinstance(default, bool):
            return "" if self.is_flag else "yes" if default else "no"
        if isinstance(default, tuple):
            return ",".join(map(str, default))
        if isinstance(default, dict):
            return ", ".join(f"{name}={value}" for name, value in default.items())
        return str(default)

    @property
    def _markers(self) -> tuple[Any, ...]:
        return getattr(self.annotation, "__metadata__", ())

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        if self.is_positional:
            return self.name.upper()
        return "--" + (self.name.removesuffix("s") if self.is_pairs else self.name).replace("_", "-")

    @property
    def flags(self) -> tuple[str, ...]:
        """All spellings of the option."""
        is_pair = bool in self.kinds and not self.is_flag
        return (self.flag, self.flag.replace("--", "--no-", 1)) if is_pair else (self.flag,)


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def options_of(options: type) -> dict[str, Option]:
    """Return the options that a dataclass and its groups declare, by name."""
    return {each.name: each for each in _declared(options, None)}


def _declared(options: type, group: str | None) -> Iterator[Option]:
    hints, helps = get_type_hints(options, include_extras=True), _field_docstrings(options)
    for each in fields(options):
        if is_dataclass(inner := _bare(hints[each.name])):
            left_out = [mark for mark in getattr(hints[each.name], "__metadata__", ()) if isinstance(mark, Without)]
            yield from (
                one
                for one in _declared(inner, each.name)  # type: ignore[arg-type]  # a type, not an instance
                if not any(one.name in mark.names for mark in left_out)
            )
            continue
        yield Option(
            name=each.name,
            annotation=hints[each.name],
            help=helps.get(each.name, ""),
            default=each.default if each.default_factory is MISSING else each.default_factory(),
            group=group,
        )


@cache
def _field_docstrings(options: type) -> dict[str, str]:
    """Read the docstrings under the fields of a dataclass, which Python itself does not keep."""
    found: dict[str, str] = {}
    for base in reversed([each for each in options.__mro__ if is_dataclass(each)]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        for line, following in pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
            if (
                isinstance(line, ast.AnnAssign)
                and isinstance(line.target, ast.Name)
                and isinstance(following, ast.Expr)
            ):
                found[line.target.id] = " ".join(str(ast.literal_eval(following.value)).split())
    return found


def build(options: type[T], values: Mapping[str, Any]) -> T:
    """Make the dataclass and its groups from values by name; missing values keep their defaults."""
    hints, given = get_type_hints(options), {}
    for each in fields(options):  # type: ignore[arg-type]  # a dataclass
        if is_dataclass(hints[each.name]):
            given[each.name] = build(hints[each.name], values)
        elif each.name in values:
            given[each.name] = values[each.name]
    return options(**given)


def flatten(options: object) -> dict[str, Any]:
    """Return the values of a dataclass and its groups by name: the inverse of `build`."""
    groups = {each.name: each.group for each in options_of(type(options)).values()}
    return {name: getattr(getattr(options, group) if group else options, name) for name, group in groups.items()}
