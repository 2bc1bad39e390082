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
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tyro.conf import FlagCreatePairsOff, Positional

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ConfigFile", "Flag", "Hint", "Option", "Pairs", "Positional", "build", "flatten", "options_of"]

T = TypeVar("T")
UNIONS = (Union, UnionType)


@dataclass(frozen=True, kw_only=True)
class Hint:
    """What the help shows of an option, in an annotation: `Annotated[Path | None, Hint(default="by data set")]`."""

    default: str | None = None
    """The default, where the declared one is not all there is to say."""
    value: str | None = None
    """The value to type, where its type does not say enough."""


class _Once:
    """Mark an option as typed for one call, never held by a configuration file."""


Flag = Annotated[bool, FlagCreatePairsOff, _Once]
Pairs = Annotated[dict[str, Any], "NAME=VALUE"]
ConfigFile = Annotated[Path | None, _Once]


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option as its dataclass declares it."""

    name: str
    annotation: Any
    help: str
    default: Any
    """`MISSING` where the option must be given."""
    group: str | None
    """The field that holds the group it belongs to."""

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
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
        """What the help shows of it."""
        return next((each for each in self._markers if isinstance(each, Hint)), Hint())

    @property
    def is_pairs(self) -> bool:
        """Whether it is typed as NAME=VALUE, any number of times."""
        return bool(self.annotation == Pairs)

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that its value may have."""
        kind = self.annotation
        while get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        return tuple(get_origin(each) or each for each in (get_args(kind) if get_origin(kind) in UNIONS else (kind,)))

    @property
    def _markers(self) -> tuple[Any, ...]:
        return getattr(self.annotation, "__metadata__", ())

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        if self.is_positional:
            return self.name.upper()
        return "--" + (self.name.removesuffix("s") if self.is_pairs else self.name).replace("_", "-")


def options_of(options: type) -> dict[str, Option]:
    """Return the options that a dataclass declares, those of its groups among them, by name."""
    return {each.name: each for each in _declared(options, None)}


def _declared(options: type, group: str | None) -> Iterator[Option]:
    hints, helps = get_type_hints(options, include_extras=True), _field_docstrings(options)
    for each in fields(options):
        if is_dataclass(hints[each.name]):
            yield from _declared(hints[each.name], each.name)
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
    tree = ast.parse(textwrap.dedent(inspect.getsource(options))).body[0]
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    return {
        line.target.id: " ".join(str(following.value.value).split())
        for line, following in pairwise(body)
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
    }


def build(options: type[T], values: Mapping[str, Any]) -> T:
    """Make the dataclass and its groups from values by name; what is not given keeps its default."""
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
