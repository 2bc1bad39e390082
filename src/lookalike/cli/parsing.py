"""Parse the command line and print its help, from the dataclass that declares a command's options.

A command is one file, `cli/NAME.py`, with an entry in `COMMANDS` of `cli/__init__.py`. It declares its options as a
dataclass, in which docstrings under the fields are the help, and a function `main`, whose docstring describes it:

    @dataclass(frozen=True, kw_only=True)
    class Options:
        source: Positional[Path]
        '''Embeddings (.npy, .npz, .safetensors, .parquet), or the folder of a run.'''
        k: int = 128
        '''Hard negatives per anchor.'''
        out: Annotated[Path | None, Hint(default="analysis.json beside SOURCE")] = None
        '''File to write.'''
        force: Flag = False
        '''Overwrite the output.'''


    def main(args: list[str]) -> None:
        '''Compare the hard negatives found in bits with the true ones.'''
        options = parse(Options, args, "analyze", main.__doc__)
        from lookalike.analysis.study import analyze  # imports torch: only once the command line is parsed

        ...

The file imports nothing heavy at its top, so that `--help` answers at once, and not `annotations` from `__future__`
(linters would then ask for imports that only type checkers see). `main` raises ValueError, TypeError, ImportError or
OSError for a mistake of the user's; `lookalike.cli.main` prints it in one line and exits with 2. Errors of the library
name arguments (`force=True`), which `lookalike.cli.main` replaces by options (`--force`).

A field whose type is a dataclass is a group: its fields become options like the others, in a box of their own in the
help, titled by the field's name. A boolean becomes `--name` and `--no-name`. A `Flag` becomes `--name` alone, and no
configuration file holds it: it belongs to one call. `Pairs` collects `--model-option NAME=VALUE`, typed any number of
times, into the dictionary `model_options`.

A command that reads a configuration file (`--config FILE`) and prints one (`--print-config`) merges what was typed over
what the file holds, and that over the defaults:

    # with `config: ConfigFile = None` and `print_config: Flag = False` among the options
    typed = parse_typed(Options, args, "mine", main.__doc__)
    options = build(Options, {**read_config(typed.get("config"), Options), **typed})
    if options.print_config:
        print_config(options)
        return
"""

from __future__ import annotations

import inspect
import json
from dataclasses import MISSING, field, make_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import tyro
from tyro.conf import UseAppendAction
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from lookalike.cli.options import ConfigFile, Flag, Hint, Option, Pairs, Positional, build, options_of
from lookalike.utils.messages import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "ConfigFile",
    "Flag",
    "Hint",
    "Pairs",
    "Positional",
    "build",
    "integers",
    "parse",
    "parse_typed",
]

T = TypeVar("T")
WORDS = {"true": True, "false": False, "none": None, "null": None}
METAVARS = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}
EXPECTED = {int: "an integer", float: "a number"}


def parse(options: type[T], args: Sequence[str], command: str, description: str | None) -> T:
    """Parse the arguments of a command; print its help and exit where they ask for it.

    Args:
        options: The dataclass that declares its options.
        args: What was typed after its name.
        command: Its name, such as "data check".
        description: What it does, for the help.

    Raises:
        ValueError: There is no such option.
    """
    return build(options, parse_typed(options, args, command, description))


def parse_typed(
    options: type,
    args: Sequence[str],
    command: str,
    description: str | None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the options that were typed, by name; otherwise as `parse`.

    Args:
        options: As in `parse`.
        args: As in `parse`.
        command: As in `parse`.
        description: As in `parse`.
        defaults: Defaults to show in the help where they differ from those of the dataclass.
    """
    declared, prog = options_of(options), f"lookalike {command}"
    found, unknown = tyro.cli(
        _class_for_tyro(options, defaults or {}),
        prog=prog,
        description=inspect.cleandoc(description or ""),
        args=args,
        registry=_registry(),
        return_unknown_args=True,
    )
    if unknown:
        flags = [flag for each in declared.values() if not each.is_positional for flag in _spellings(each)]
        raise ValueError(_unknown(prog, unknown[0], flags))
    words = {arg.partition("=")[0].replace("_", "-") for arg in args if arg.startswith("--")}
    typed = {}
    for name, each in declared.items():
        value = getattr(getattr(found, each.group) if each.group else found, name)
        if words.intersection(_spellings(each)) or (each.is_positional and value != each.default):
            typed[name] = _pairs(each.flag, value) if each.is_pairs else value
    return typed


def _class_for_tyro(options: type, defaults: Mapping[str, Any]) -> Any:
    """Copy a dataclass without its checks, whose errors tyro would word, and with everything that the help shows."""
    members: dict[str | None, list[Any]] = {None: []}
    for each in options_of(options).values():
        members.setdefault(each.group, []).append(_member(each, defaults))
    hints = get_type_hints(options)
    for group, content in members.items():
        if group is not None:
            made = make_dataclass(group, content, kw_only=True)
            made.__doc__ = inspect.cleandoc(hints[group].__doc__ or "")
            members[None].append((group, made))
    return make_dataclass("Options", members[None], kw_only=True)


def _member(each: Option, defaults: Mapping[str, Any]) -> tuple[Any, ...]:
    annotation = UseAppendAction[list[str]] if each.is_pairs else each.annotation
    shown = tyro.conf.arg(
        name=each.flag.removeprefix("--") if each.is_pairs else None,
        help=each.help,
        help_behavior_hint=_default_shown(each, defaults),
        metavar=_metavar(each),
        prefix_name=False,
    )
    if each.is_required:
        return each.name, Annotated[annotation, shown]
    default = field(default_factory=list) if each.is_pairs else field(default=each.default)
    return each.name, Annotated[annotation, shown], default


def _default_shown(each: Option, defaults: Mapping[str, Any]) -> str:
    default = defaults.get(each.name, each.default)
    if each.hint.default is not None and each.name not in defaults:
        default = each.hint.default
    if isinstance(default, bool) and not each.is_flag:
        default = "yes" if default else "no"
    if isinstance(default, dict):
        default = ", ".join(f"{name}={value}" for name, value in default.items())
    if default is None or default is False or default in ("", MISSING):
        return "(repeatable)" if each.is_pairs else ""
    return f"(default: {default})"


def _metavar(each: Option) -> str | None:
    """Name the type of a value, without the None of an option that need not be given."""
    if each.hint.value or each.is_pairs:
        return each.hint.value or "NAME=VALUE"
    if each.is_positional:
        return each.flag if each.is_required else f"[{each.flag}]"
    kinds = [kind for kind in each.kinds if kind is not NoneType]
    return "|".join(METAVARS[kind] for kind in kinds) if all(kind in METAVARS for kind in kinds) else None


def _spellings(each: Option) -> tuple[str, ...]:
    return each.flag, each.flag.replace("--", "--no-", 1)


@cache
def _registry() -> ConstructorRegistry:
    """Word tyro's errors about numbers."""
    registry = ConstructorRegistry()

    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        kind = info.type
        if kind not in EXPECTED:
            return None

        def convert(texts: list[str]) -> Any:
            try:
                return kind(texts[0])
            except ValueError:
                raise ValueError(f"expected {EXPECTED[kind]}, got {texts[0]!r}.") from None

        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=METAVARS[kind],
            instance_from_str=convert,
            is_instance=lambda value: isinstance(value, kind),
            str_from_instance=lambda value: [str(value)],
        )

    registry.primitive_rule(rule)
    return registry


def _pairs(flag: str, texts: Iterable[str]) -> dict[str, Any]:
    """Turn NAME=VALUE into a dictionary; values are numbers, true, false, none, lists, or else text."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{flag} takes NAME=VALUE, such as size=224, got {text!r}.")
        try:
            found[name] = WORDS[value.lower()] if value.lower() in WORDS else json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def integers(flag: str, text: str) -> tuple[int, ...]:
    """Split integers with commas between them.

    Raises:
        ValueError: They are something else.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{flag} takes integers with commas between them, such as 128,512, got {text!r}.") from None


def _unknown(prog: str, word: str, flags: Iterable[str]) -> str:
    if not word.startswith("-"):
        return f"there is no place for the argument {word!r}. See {prog} --help."
    flag = word.partition("=")[0]
    return f"there is no option {flag!r}{suggestion(flag, flags)} See {prog} --help."
