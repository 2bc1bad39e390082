"""Every example runs, and shows what it says: mined batches are harder than random ones."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LIBRARIES = {
    "lightning_trainer": "lightning",
    "metric_learning_trainer": "pytorch_metric_learning",
    "sentence_transformers_trainer": "sentence_transformers",
}

READY = ("lightning_trainer", "metric_learning_trainer")  # whose model finds positives before it is trained


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(LIBRARIES)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.* is deprecated")
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar:UserWarning")
@pytest.mark.parametrize("name", LIBRARIES)
def test_example(name, capsys, threads):
    pytest.importorskip(LIBRARIES[name])
    threads(1)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    lines = re.findall(r"^(.*?)((?: +0\.\d{3}){3})$", capsys.readouterr().out, flags=re.MULTILINE)
    (_, random), (name_of_mined, mined) = lines
    assert "mined" in name_of_mined
    own_epochs, mined_epochs = ([float(value) for value in values.split()] for values in (random, mined))
    if name not in READY:
        assert mined_epochs[0] == pytest.approx(own_epochs[0], abs=0.06)
        own_epochs, mined_epochs = own_epochs[1:], mined_epochs[1:]
    assert all(mine > own + 0.03 for own, mine in zip(own_epochs, mined_epochs, strict=True))
