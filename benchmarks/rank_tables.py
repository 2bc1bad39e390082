"""The tables of what was measured for training with large batches and many ranks."""

from collections.abc import Callable
from typing import Any

from benchmarks import record
from benchmarks.markdown import markdown

STAGES = {"search": "search", "copy": "copy", "partition": "division into parts", "parts": "parts", "rest": "rest"}


def _epoch_change() -> str:
    result = record.read("epoch_change")
    settings = result["settings"]
    shown = [stage for stage in STAGES if stage in result["epoch_change"][0]["seconds"]]
    header = ["pairs", *(f"{STAGES[stage]}, s" for stage in shown), "total, s", "memory, of the lists"]
    rows = [
        [
            f"{row['pairs']:,}",
            *(f"{row['seconds'][stage]:.2f}" for stage in (*shown, "total")),
            row["memory_over_lists"],
        ]
        for row in result["epoch_change"]
    ]
    lists = "found by the search" if settings["searched"] else "drawn at random from clusters, without a search"
    note = (
        f"Batches of {settings['pairs_per_batch']} pairs, {settings['k']} neighbours each, {lists}; "
        f"{settings['threads']} threads on {_where(result)}; from `benchmarks/results/epoch_change.json`."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _chunks() -> str:
    result = record.read("chunks")
    settings = result["settings"]
    header = ["pairs per chunk", "seconds per step", "peak memory", "loss", "largest difference between gradients"]
    rows = [
        [
            "undivided" if row["chunk"] is None else row["chunk"],
            row["seconds"],
            f"{row['peak_megabytes']:,} MB",
            f"{row['loss']:.6f}",
            "" if row["chunk"] is None else f"{row['largest_difference_of_gradients']:.0e} of their norm",
        ]
        for row in result["chunks"]
    ]
    note = (
        f"A batch of {settings['pairs']:,} pairs of {settings['side']} x {settings['side']} images, `convnet` of width "
        f"{settings['width']}, float32; {_where(result)}; from `benchmarks/results/chunks.json`."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _kill_ranks() -> str:
    result = record.read("kill_ranks")
    header = ["ranks", "killed", "hangs", "failed", "other weights", "until the others ended: median, most"]
    rows = [
        [
            row["ranks"],
            row["kills"],
            row["hangs"],
            row["failed"],
            row["different"],
            "{median:.1f} s, {most:.1f} s".format(**row["seconds_until_the_others_ended"]),
        ]
        for row in result["rows"]
    ]
    phases = ", ".join(f"{number} in its {phase}" for phase, number in result["by_phase"].items())
    note = (
        f"One rank of a run killed with SIGKILL at a random moment ({phases}), restarted by `torchrun`; "
        f"{_where(result)}; from `benchmarks/results/kill_ranks.json`."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _where(result: dict[str, Any]) -> str:
    machine = result["machine"]
    return str(machine.get("gpu") or f"{machine['cores']} cores, no GPU")


TABLES: dict[str, Callable[[], str]] = {"epoch_change": _epoch_change, "chunks": _chunks, "kill_ranks": _kill_ranks}
