"""The notebooks of the documentation run, and their committed outputs are those of their code."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "notebooks" / "execute.py"
SPEC = importlib.util.spec_from_file_location("execute", SCRIPT)
execute = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(execute)
NOTEBOOKS = pytest.mark.parametrize("path", execute.notebooks(), ids=lambda path: path.stem)


def test_there_are_three():
    assert len(execute.notebooks()) == 3


@NOTEBOOKS
def test_committed_outputs_are_those_of_the_code(path):
    notebook = execute.read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.metadata["lookalike"]["executed"] == execute.checksum(notebook), f"run `python {SCRIPT.name}`"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert any(output.output_type == "stream" and output.name == "stdout" for output in outputs)
    assert "/home/" not in str(outputs)
    assert not any(output.output_type == "error" for output in outputs)


@NOTEBOOKS
@pytest.mark.timeout(120)
def test_notebooks_run(path, tmp_path):
    before = {file: file.stat().st_mtime_ns for file in path.parent.iterdir()}
    notebook = execute.read(path)
    printed = [has_output(cell) for cell in notebook.cells]
    execute.execute(notebook, tmp_path)
    assert [has_output(cell) for cell in notebook.cells] == printed
    assert {file: file.stat().st_mtime_ns for file in path.parent.iterdir()} == before


def has_output(cell):
    return bool(cell.get("outputs"))
