"""Configuration files: the options of a command as YAML, read with `--config FILE`, printed with `--print-config`."""

import re
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any

from lookalike.cli.options import Option, flatten, options_of
from lookalike.utils.messages import suggestion

ACCEPTED: dict[Any, Any] = {  # what a file may hold for an option of a type
    bool: bool,
    int: int,
    float: int | float,
    str: str,
    Path: str,
    dict: dict,
}


@cache
def _loader() -> Any:
    """Return a YAML loader that reads 1e-3 as a number and refuses duplicate keys."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml is not typed
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.MarkedYAMLError(problem="a key must be a name", problem_mark=key.start_mark)
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} appears twice", problem_mark=key.start_mark)
                seen.add(key.value)
            return dict(super().construct_mapping(node, deep))

    number = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    return Loader


def read_config(path: Path | None, options: type) -> dict[str, Any]:
    """Read the values that a file gives to options, by name; none without a file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a YAML mapping, or holds something that is not an option.
    """
    if path is None:
        return {}
    import yaml

    try:
        with path.open(encoding="utf-8") as file:
            values = yaml.load(file, _loader())  # noqa: S506 - derived from SafeLoader
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such configuration file.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML ({' '.join(str(error).split())}).") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold options, one per line, such as `epochs: 10`, got {type(values).__name__}.")
    return {str(name): _converted(path, str(name), value, options) for name, value in values.items()}


def _converted(path: Path, name: str, value: Any, options: type) -> Any:
    """Convert a value from a file to the type of its option.

    Raises:
        ValueError: It has another type, or there is no such option.
    """
    known = options_of(options)
    if name not in known:
        raise ValueError(f"{path}: there is no option {name!r}{suggestion(name, _in_files(options))}")
    if not known[name].in_config:
        raise ValueError(f"{path}: {name} cannot be set in a file; type {known[name].flag} instead.")
    if not known[name].is_tuple:
        return _single(path, known[name], value)
    values = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    return tuple(_single(path, known[name], each) for each in values)


def _single(path: Path, option: Option, value: Any) -> Any:
    if value is None and NoneType in option.kinds:
        return None
    for kind, accepted in ACCEPTED.items():
        if kind in option.kinds and isinstance(value, accepted) and (kind is bool or not isinstance(value, bool)):
            return kind(value)
    raise ValueError(f"{path}: {option.name} must be {option.expected}, got {value!r}.")


def print_config(options: Any) -> None:
    """Print options as a file that `read_config` reads."""
    import yaml

    groups = {name: each.group for name, each in options_of(type(options)).items()}
    values = {name: _plain(value) for name, value in flatten(options).items() if name in _in_files(type(options))}
    shown = {name: value for name, value in values.items() if value is not None or groups[name]}
    print(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), end="")


def _in_files(options: type) -> list[str]:
    return [name for name, each in options_of(options).items() if each.in_config]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
