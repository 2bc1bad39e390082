"""Training settings: what they accept, by name and from dictionaries."""

import ast
import inspect
import itertools
import re
import subprocess
import sys
from dataclasses import asdict, replace
from typing import get_args

import pytest

from lookalike.training.settings import SAMPLERS, Sampler, Settings, parse_strategy
from tests.processes import PATIENCE


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"sampler": "hardest"},
            "sampler must be one of 'random', 'batchhard', 'full', 'incremental', 'lsh', got 'hardest'",
        ),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"pairs_per_batch": 1}, "pairs_per_batch must be at least 2"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"warmup": 1.0}, "warmup must be at least 0 and below 1, got 1"),
        ({"mask_above": 1.5}, "mask_above must be above 0 and at most 1, got 1.5"),
        ({"guard": 7.0}, "guard must be above 0 and at most 2, got 7"),
        ({"hardness": 1.5}, "hardness must be at least 0 and at most 1, got 1.5"),
        ({"method": "kmeans"}, "method must be one of 'growth', 'sample4geo', got 'kmeans'"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"learning_rate": float("inf")}, "learning_rate must be above 0, got inf"),
        ({"temperature": float("nan")}, "temperature must be at least 0.01 and at most 1.0, got nan"),
        ({"validation_share": 1.0}, "validation_share must be at least 0 and below 1, got 1"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"patience": 2, "evaluate_every": 0}, "patience= counts evaluations, and evaluate_every=0 has none"),
        ({"target_overlap": 0.0}, "target_overlap must be above 0 and at most 1, got 0"),
    ],
)
def test_settings_that_cannot_be(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings(**options)


@pytest.mark.parametrize("options", [{"epochs": "3"}, {"hardness": "all"}, {"seed": 1.5}, {"track_overlap": "yes"}])
def test_settings_of_another_type(options):
    with pytest.raises(TypeError, match=f"{next(iter(options))} must be "):
        Settings(**options)


def test_strategies_by_name():
    assert parse_strategy("lsh:auto") == {"sampler": "lsh", "code": "signs", "bits": "auto"}
    assert parse_strategy("scalar") == {"sampler": "lsh", "code": "scalar"}
    for name in ("lsh:128", "scalar:128", "scalar:auto", "auto:auto"):
        for before in (Settings(), Settings(code="scalar", bits=64), Settings(code="auto", bits="auto")):
            assert replace(before, **parse_strategy(name)).strategy == name
    for text in ("random:128", "random:auto", "lsh:many", "lsh:-8", "scalar:many"):
        with pytest.raises(ValueError, match="only lsh and scalar take a number of bits"):
            parse_strategy(text)


def test_settings_from_a_dictionary():
    usual = Settings(epochs=3, bits=128)
    assert Settings.from_dict({"sampler": "lsh:auto", "seed": 2}, usual) == Settings(epochs=3, bits="auto", seed=2)
    assert Settings.from_dict({"sampler": "lsh:64", "bits": 64}).bits == 64
    assert Settings.from_dict({"bits": 64}, usual).strategy == "lsh:64"
    assert Settings.from_dict(asdict(usual)) == usual


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"learning_rat": 1.0}, "there is no setting 'learning_rat'; did you mean 'learning_rate'?"),
        ({"zzz": 1.0}, "there is no setting 'zzz'."),
        ({"sampler": "randm"}, "lsh:BITS, lsh:auto, scalar:BITS, scalar:auto and auto:auto; did you mean 'random'?"),
        ({"sampler": "scalar:64", "code": "signs"}, "sampler=scalar:64 and code=signs contradict each other"),
        ({"sampler": "scalar:16"}, 'code="scalar" needs at least 32 bits, got 16; fewer take code="signs".'),
        ({"sampler": "lsh:64", "code": "scalar"}, "sampler=lsh:64 and code=scalar contradict each other"),
        ({"sampler": "lsh:128", "bits": 64}, "sampler=lsh:128 and bits=64 contradict each other: set one of them."),
    ],
)
def test_dictionaries_that_cannot_be(options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Settings.from_dict(options)


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        ("random", "bits"),
        ("full", "guard"),
        ("lsh:64", "target_overlap"),
        ("batchhard", "hardness"),
        ("random", "neighbourhood"),
    ],
)
def test_settings_without_effect_are_refused_if_asked_for(strategy, name):
    with pytest.raises(ValueError, match=rf"{name}= has no effect with the sampler {strategy}\."):
        Settings.from_dict({"sampler": strategy}).check_used(["epochs", name])


@pytest.mark.parametrize(
    ("name", "other"), [("neighbourhood", {"method": "sample4geo"}), ("warm_hardness", {"warm_start": "off"})]
)
def test_settings_that_another_one_turns_off_are_refused(name, other):
    (what,) = other
    with pytest.raises(ValueError, match=rf"{name}= has no effect with {what}={other[what]}\."):
        Settings(**other).check_used(["epochs", name])
    Settings().check_used([name])


def test_settings_with_effect_are_not():
    Settings(bits="auto").check_used(["bits", "guard", "target_overlap", "hardness", "neighbourhood", "method", "seed"])
    Settings(sampler="full").check_used(["hardness", "neighbourhood", "method"])


def test_every_setting_has_a_help_text():
    """The command line and the documentation take it from under the field."""
    body = ast.parse(inspect.getsource(Settings)).body[0].body
    following = dict(itertools.pairwise(body))
    for line in body:
        if isinstance(line, ast.AnnAssign):
            text = following[line]
            assert isinstance(text, ast.Expr), f"{line.target.id} has no help"
            assert text.value.value.endswith("."), line.target.id


def test_the_samplers_are_those_of_the_type():
    assert list(SAMPLERS) == list(get_args(Sampler))


def test_settings_load_no_torch():
    code = "import sys; import lookalike; lookalike.Settings(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=PATIENCE, check=False).returncode == 0
