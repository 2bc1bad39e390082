"""Options from dataclasses: types, groups, and what was typed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from lookalike.cli.options import flatten, options_of
from lookalike.cli.parsing import Flag, Hint, Pairs, Positional, Without, build, parse, parse_typed


@dataclass(frozen=True, kw_only=True)
class Group:
    """What belongs together.

    And more that the help leaves out.
    """

    rate: float | None = None
    """A rate, described over
    two lines."""
    mode: Literal["fast", "slow"] = "fast"
    """How."""
    size: int | Literal["auto"] = 8
    """How large."""
    hidden: int = 3
    """Not to be typed."""

    def __post_init__(self):
        if self.mode not in ("fast", "slow"):
            raise ValueError(f"mode must be fast or slow, got {self.mode!r}.")


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Options of several commands."""

    source: Positional[Path]
    """What to read."""
    other: Positional[str | None] = None
    """What else."""


@dataclass(frozen=True, kw_only=True)
class Options(Shared):
    """Options of a command."""

    out: Annotated[Path | None, Hint(default="beside SOURCE", value="FILE")] = None
    """What to write."""
    lengths: tuple[int, ...] = (64, 128)
    """Some lengths."""
    bars: bool = True
    """Show bars."""
    force: Flag = False
    """Overwrite."""
    reader_options: Pairs = field(default_factory=dict)
    """Of the reader."""
    group: Annotated[Group, Without("hidden")] = field(default_factory=Group)


def parsed(*args):
    return parse(Options, args, "test", "A test.")


def test_defaults():
    assert parsed("a.npy") == Options(source=Path("a.npy"))
    assert parse_typed(Options, ["a.npy"], "test", "A test.") == {"source": Path("a.npy")}


def test_values_of_every_type():
    args = ["a.npy", "b", "--out", "c", "--lengths", "8, 16", "--no-bars", "--force", "--rate=1e-3", "--mode", "slow"]
    args += ["--size", "16", "--reader-option", "x=1", "--reader-option", "y=[1, 2]", "--reader-option", "z=none"]
    expected = Options(
        source=Path("a.npy"),
        other="b",
        out=Path("c"),
        lengths=(8, 16),
        bars=False,
        force=True,
        reader_options={"x": 1, "y": [1, 2], "z": None},
        group=Group(rate=1e-3, mode="slow", size=16),
    )
    assert parsed(*args) == expected
    assert build(Options, flatten(expected)) == expected


def test_what_was_typed_is_known_even_if_it_is_the_default():
    typed = parse_typed(Options, ["a", "--size", "8", "--bars", "--rate", "None"], "test", None)
    assert typed == {"source": Path("a"), "size": 8, "bars": True, "rate": None}


def test_underscores_and_negative_numbers():
    assert parsed("a", "--reader_option", "x=-1", "--rate", "-2").group.rate == -2


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("a", "--rate", "x"), "--rate must be a number, got 'x'."),
        (("a", "--size", "large"), "--size must be an integer or auto, got 'large'."),
        (("a", "--lengths", "1,2.5"), "--lengths must be an integer, or several with commas between them, got '2.5'."),
        (("a", "--mode", "quick"), "mode must be fast or slow, got 'quick'."),
        (("a", "--hidden", "4"), "there is no option '--hidden'"),
        (("a", "--forc"), "there is no option '--forc'; did you mean '--force'?"),
        (("a", "--no-bar"), "there is no option '--no-bar'; did you mean '--no-bars'?"),
        (("a", "b", "c"), "unexpected argument 'c'."),
        (("a", "--reader-option", "x"), "--reader-option must be NAME=VALUE, such as size=224, got 'x'."),
        (("a", "--reader-option", "x y=1"), "--reader-option must be NAME=VALUE"),
    ],
)
def test_mistakes(args, sentence):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        parsed(*args)
    assert str(caught.value).startswith(sentence)


def test_a_missing_argument(capsys):
    with pytest.raises(SystemExit) as ended:
        parsed("--force")
    assert ended.value.code == 2
    assert "Missing from lookalike test" in capsys.readouterr().err


def test_the_help_shows_types_defaults_and_groups(capsys):
    with pytest.raises(SystemExit) as ended:
        parse_typed(Options, ["--help"], "test", "A test.\n\n    With more.", {"rate": "by source", "size": 16})
    assert not ended.value.code
    shown = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert shown.startswith("usage: lookalike test [-h] ")
    for part in (
        "A test. With more.",
        "--out FILE What to write. (default: beside SOURCE)",
        "--lengths INT,INT,... Some lengths. (default: 64,128)",
        "--bars, --no-bars Show bars. (default: yes)",
        "--force Overwrite. --reader-option NAME=VALUE Of the reader. (repeatable)",
        "group options",
        "What belongs together.",
        "--rate FLOAT A rate, described over two lines. (default: by source)",
        "--mode fast|slow How. (default: fast)",
        "--size INT|auto How large. (default: 16)",
    ):
        assert part in shown
    assert "hidden" not in shown
    assert "And more" not in shown


def test_options_are_described_once():
    options = options_of(Options)
    assert list(options)[:2] == ["source", "other"]
    assert "hidden" not in options
    assert options["rate"].group == "group"
    assert options["reader_options"].flag == "--reader-option"
    assert options["bars"].flags == ("--bars", "--no-bars")
    assert not options["force"].in_config
    assert all(each.help for each in options.values())
