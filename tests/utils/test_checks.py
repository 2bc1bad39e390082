import subprocess
import sys

import numpy as np
import pytest

from lookalike.utils.checks import Range, check_choice, check_options, checked_bits, checked_integer, checked_positive
from lookalike.utils.messages import nearest


def test_integers_of_numpy_are_integers():
    assert checked_positive("k", np.int32(3)) == 3
    assert type(checked_integer("seed", np.uint64(0))) is int


def read(path, *, size=3, width=4, progress=False):
    return path, size, width, progress


@pytest.mark.parametrize(
    ("check", "error", "sentence"),
    [
        (lambda: checked_positive("k", 0), ValueError, "k must be at least 1, got 0."),
        (lambda: checked_positive("k", True), TypeError, "k must be an integer, got bool."),
        (lambda: checked_integer("seed", -1), ValueError, "seed must be at least 0, got -1."),
        (lambda: checked_integer("seed", 2**63), ValueError, f"seed must be below 2**63, got {2**63}."),
        (lambda: checked_integer("seed", 1.0), TypeError, "seed must be an integer, got float."),
        (lambda: checked_bits(20), ValueError, "bits must be a multiple of 8, got 20; the next one is 24."),
        (lambda: Range(0, 1).check("warmup", 1), ValueError, "warmup must be at least 0 and below 1, got 1."),
        (lambda: Range(0, with_low=False).check("rate", 0.0), ValueError, "rate must be above 0, got 0.0."),
        (lambda: Range(0).check("rate", float("nan")), ValueError, "rate must be at least 0, got nan."),
        (lambda: Range(0).check("rate", "1"), TypeError, "rate must be a number, got str."),
        (
            lambda: check_choice("method", "grwth", ("growth", "sample4geo")),
            ValueError,
            "method must be one of 'growth', 'sample4geo', got 'grwth'; did you mean 'growth'?",
        ),
        (lambda: check_choice("method", None, ("growth",)), ValueError, "method must be one of 'growth', got None."),
        (
            lambda: check_options("the reader", read, ["size", "widht"]),
            ValueError,
            "the reader does not take the option 'widht'; did you mean 'width'?",
        ),
        (
            lambda: check_options("the reader", read, ["progress"]),
            ValueError,
            "the reader does not take the option 'progress'.",
        ),
    ],
)
def test_bad_input_gets_a_sentence(check, error, sentence):
    with pytest.raises(error) as raised:
        check()
    assert str(raised.value) == sentence


def test_good_input_passes():
    assert Range(0, 1, with_high=True).check("share", 1) == 1
    check_choice("method", "growth", ("growth", "sample4geo"))
    check_options("the reader", read, ["size", "width"])
    check_options("anything", lambda **options: options, ["whatever"])
    assert nearest("qwertz", ["growth"]) is None


def test_settings_are_checked_without_torch():
    code = "import sys, lookalike.training.settings; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
