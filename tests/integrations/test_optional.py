"""Optional libraries are needed where they are used, and nowhere else."""

import importlib
import subprocess
import sys

import pytest

from tests.processes import PATIENCE

LIBRARIES = {
    "sentence_transformers": (["sentence_transformers"], "lookalike[text]"),
    "lightning": (["lightning", "lightning.pytorch", "pytorch_lightning"], "lookalike[lightning]"),
    "metric_learning": (["pytorch_metric_learning", "pytorch_metric_learning.losses"], "lookalike[metric-learning]"),
}


@pytest.mark.parametrize("module", LIBRARIES)
def test_a_missing_library_is_named_with_the_command_that_installs_it(module, monkeypatch):
    needed, extra = LIBRARIES[module]
    for loaded in [name for name in sys.modules if name.startswith(f"lookalike.integrations.{module}")]:
        monkeypatch.delitem(sys.modules, loaded)
    for library in needed:
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError) as caught:
        importlib.import_module(f"lookalike.integrations.{module}")
    assert f"pip install '{extra}'" in str(caught.value)


def test_lookalike_itself_imports_none_of_them():
    libraries = {library for needed, _ in LIBRARIES.values() for library in needed}
    libraries |= {"datasets", "torchvision", "transformers"}
    program = (
        "import sys, lookalike\n"
        "for name in lookalike.__all__: getattr(lookalike, name)\n"
        f"print(sorted({libraries!r} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert result.stdout.strip() == "[]"
