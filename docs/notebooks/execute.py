"""Execute the notebooks and keep their outputs: run it after every change to one of them.

python docs/notebooks/execute.py
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
TIMEOUT = 120  # seconds for one cell


def notebooks() -> list[Path]:
    """Return the notebooks in the order in which to read them."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> Any:
    """Read a notebook."""
    return nbformat.read(path, as_version=4)


def checksum(notebook: Any) -> str:
    """Return a checksum of the code, by which the outputs are known to be its own."""
    code = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def execute(notebook: Any, folder: Path) -> None:
    """Run all cells with this interpreter, from an empty folder, and put their outputs into the notebook.

    Raises:
        CellExecutionError: A cell fails; the message holds its code and the traceback.
    """
    hidden = {"IPYTHONDIR": str(folder / ".ipython"), "JUPYTER_RUNTIME_DIR": str(folder / ".jupyter")}
    quiet = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    client = NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**os.environ, **hidden, **quiet})


def main() -> None:
    """Execute every notebook in place."""
    for path in notebooks():
        notebook = read(path)
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, Path(folder))
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # when it ran
        notebook.metadata = {
            "kernelspec": notebook.metadata.kernelspec,
            "language_info": {"name": "python"},
            "lookalike": {"executed": checksum(notebook)},
        }
        nbformat.write(notebook, path)
        sys.stdout.write(f"{path.name}: executed\n")


if __name__ == "__main__":
    main()
