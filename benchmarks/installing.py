"""Write the documentation's tables of what to install: extras from pyproject.toml, sizes from the committed result."""

import tomllib
from pathlib import Path

from benchmarks import record
from benchmarks.markdown import markdown

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
USES = {  # extras for users: what each is for, and the page that tells more
    "text": ("mine texts, train on texts", "mining.md"),
    "lora": ("low-rank adapters of text encoders", "training.md"),
    "images": ("image encoders of timm", "training.md"),
    "ray": ("mine on a cluster", "mining.md"),
    "tables": ("read and write Parquet", "data.md"),
    "explore": ("`lookalike explore`", "explore.md"),
    "cuda": ("the search on NVIDIA GPUs", "kernels.md"),
    "lightning": ("the callback for Lightning", "trainers/lightning.md"),
    "metric-learning": ("pytorch-metric-learning's trainers and losses", "trainers/metric_learning.md"),
    "tensorboard": ("`--report-to tensorboard`", "training.md"),
    "wandb": ("`--report-to wandb`", "training.md"),
    "trackio": ("`--report-to trackio`", "training.md"),
    "notebooks": ("run the notebooks of the documentation", "install.md"),
    "all": ("all of these but `cuda`, `notebooks` and `ray`", "install.md"),
}
DEVELOPMENT = ("test", "bench", "dev", "docs")  # extras for a clone; CONTRIBUTING.md
LARGEST = 6  # packages that have a row of their own


def extras() -> dict[str, list[str]]:
    """Return the requirements of every extra."""
    found: dict[str, list[str]] = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    return found


def _extras() -> str:
    declared, rows = extras(), []
    for name, (use, page) in USES.items():
        more = f" ([more]({page}))" if page != "install.md" else ""
        brings = "" if name == "all" else ", ".join(f"`{each.partition('>')[0]}`" for each in declared[name])
        rows.append([f"`lookalike[{name}]`", f"{use}{more}", brings])
    return markdown(["extra", "for", "brings"], rows)


def _sizes() -> str:
    result = record.read("install_size")
    states = {each["state"]: each["packages"] for each in result["states"]}
    now = states["now"]
    shown = [name for name in now if name != "torch"][:LARGEST]
    rows = []
    for state, packages in states.items():
        rest = sum(size for name, size in packages.items() if name != "torch")
        rows.append([state, len(packages), _megabytes(rest), _megabytes(packages["torch"])])
    largest = ", ".join(f"{name} {_megabytes(now[name])}" for name in shown)
    own = _megabytes(now["lookalike"])
    note = (
        f"Python {result['machine']['python']}, {result['machine']['system']}, torch {result['versions']['torch']}; "
        f"without byte code. The largest now, besides torch: {largest}. lookalike itself takes {own}. From "
        "`benchmarks/results/install_size.json`."
    )
    return f"{markdown(['state', 'packages', 'without torch', 'torch'], rows)}\n\n{note}"


def _starts() -> str:
    result = record.read("install_size")
    rows = [[f"`{command}`", f"{1000 * seconds:.0f} ms"] for command, seconds in result["commands"].items()]
    note = f"Processor time, the best of {result['repeats']}; from `benchmarks/results/install_size.json`."
    return f"{markdown(['command', 'time'], rows)}\n\n{note}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


TABLES = {"extras": _extras, "install_size": _sizes, "start_times": _starts}
