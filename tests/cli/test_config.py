"""Configuration files: YAML that says what options say."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from lookalike.cli.config import print_config, read_config
from lookalike.cli.parsing import ConfigFile, Flag, Pairs, build


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group."""

    rate: float = 0.1
    guard: float | None = None
    bits: int | Literal["auto"] = 512


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a command."""

    data: str | None = None
    root: Path | None = None
    names: tuple[str, ...] = ("a",)
    bars: bool = True
    config: ConfigFile = None
    force: Flag = False
    reader_options: Pairs = field(default_factory=dict)
    group: Group = field(default_factory=Group)


def read(tmp_path, text):
    (tmp_path / "run.yaml").write_text(text)
    return read_config(tmp_path / "run.yaml", Options)


def test_without_a_file():
    assert read_config(None, Options) == {}


def test_values_of_every_type(tmp_path):
    text = (
        "data: sop\nroot: a/b\nnames: [x, lsh:64]\nbars: false\nreader_options: {size: 224}\nrate: 1e-3\nbits: auto\n"
    )
    assert read(tmp_path, text) == {
        "data": "sop",
        "root": Path("a/b"),
        "names": ("x", "lsh:64"),
        "bars": False,
        "reader_options": {"size": 224},
        "rate": 1e-3,
        "bits": "auto",
    }
    assert read(tmp_path, "names: x,y\nrate: 1\nguard: null\n") == {"names": ("x", "y"), "rate": 1.0, "guard": None}
    assert isinstance(read(tmp_path, "rate: 1")["rate"], float)
    assert read(tmp_path, "# nothing\n") == {}


def test_what_is_printed_can_be_read(tmp_path, capsys):
    values = {"root": Path("x"), "names": ("a", "b"), "reader_options": {"size": [1, 2]}, "rate": 1e-5, "guard": None}
    options = build(Options, {**values, "force": True, "config": Path("other.yaml")})
    print_config(options)
    printed = capsys.readouterr().out
    assert "force" not in printed
    assert "config" not in printed
    assert "data" not in printed  # not given
    assert "guard: null" in printed  # of a group, all is printed
    again = build(Options, read(tmp_path, printed))
    assert again == build(Options, values)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dat: sop", "there is no option 'dat'; did you mean 'data'?"),
        ("force: true", "force cannot be set in a file; type --force instead."),
        ("config: other.yaml", "config cannot be set in a file; type --config instead."),
        ("bars: maybe", "bars must be true or false, got 'maybe'."),
        ("rate: fast", "rate must be a number, got 'fast'."),
        ("rate: true", "rate must be a number, got True."),
        ("bits: 1.5", "bits must be an integer or auto, got 1.5."),
        ("root: [a]", "root must be a path, got ['a']."),
        ("names: [[a]]", "names must be text, got ['a']."),
        ("reader_options: 3", "reader_options must be names with values, got 3."),
        ("data: {a: 1}", "data must be text, got {'a': 1}."),
    ],
)
def test_mistakes_name_the_file(tmp_path, text, sentence):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'run.yaml'}: {sentence}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a", "must hold options, one per line, such as `epochs: 10`, got list."),
        ("rate: [1", "is not valid YAML ("),
        ("rate: 1\nrate: 2", "is not valid YAML ('rate' appears twice in "),
        ("rate: !!python/object/apply:os.getcwd []", "is not valid YAML (could not determine a constructor"),
    ],
)
def test_damaged_files(tmp_path, text, sentence):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'run.yaml'} {sentence}")


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.yaml: there is no such configuration file\."):
        read_config(tmp_path / "absent.yaml", Options)
