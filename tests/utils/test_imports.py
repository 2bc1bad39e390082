import sys

import pytest

from lookalike.utils.imports import MissingLibraryError, import_timm, needed_for, optional_import


def test_a_library_that_is_installed_is_imported():
    assert optional_import("json.decoder", "reading JSON").JSONDecoder


@pytest.mark.parametrize("module", ["no_such_library", "no_such_library.part"])
def test_a_missing_library_is_named_with_its_command(module):
    with pytest.raises(MissingLibraryError) as raised:
        optional_import(module, "reading tables", "'lookalike[text]'")
    assert str(raised.value) == "reading tables needs no_such_library: pip install 'lookalike[text]'."
    with pytest.raises(MissingLibraryError, match=r"pip install no_such_library\.$"):
        optional_import(module, "reading tables")


def test_a_library_that_is_broken_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_dependency'"):
        optional_import("half_installed", "reading tables")


def test_imports_in_a_block_name_the_extra():
    with (
        pytest.raises(MissingLibraryError, match=r"training needs .*\(No module named 'no_such.*'lookalike\[text\]'"),
        needed_for("training", "text"),
    ):
        import no_such_library  # noqa: F401 - it is missing


def test_timm_is_missing_or_cannot_find_its_torchvision(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'lookalike\[images\]'"):
        import_timm()
    monkeypatch.delitem(sys.modules, "timm")
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"needs a torchvision that fits torch .* \(operator torchvision::nms does"):
        import_timm()
