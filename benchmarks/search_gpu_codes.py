"""Time Hamming search on a GPU among codes that are not random: clusters, few distinct codes, a collapsed model.

    python -m benchmarks.search_gpu_codes [--rows 532736] [--bits 128,512] [--out FILE | --record]

Every kind of codes should cost about as much as random codes of the same length. Before anything is timed, answers are
compared with the plain backend's.
"""

from collections.abc import Callable
from typing import Annotated, Any

import torch
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from benchmarks import record
from benchmarks.search_gpu import K, check, seconds_of
from lookalike import hamming_topk

Matrix = torch.Tensor


def main(
    rows: Annotated[int, arg(help="Codes, searched in themselves.")] = 532_736,
    bits: Annotated[str, arg(help="Code lengths, comma-separated.")] = "128,256,512,1024",
    repeats: Annotated[int, arg(help="Timings; the median counts.")] = 5,
    device: Annotated[str, arg(help="cuda, or cpu for the search there.")] = "cuda",
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, print a table and write the results."""
    path = record.destination("search_gpu_codes", out, committed)
    step = record.Steps()
    lengths = [int(part) for part in bits.split(",")]
    timed: list[dict[str, Any]] = []
    result = {"settings": {"k": K, "rows": rows, "repeats": repeats, "device": device}, "search": timed}
    if device == "cuda":
        result["gpu"] = {"name": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    for length in lengths:
        for kind, make in KINDS.items():
            torch.manual_seed(0)
            codes, groups = make(rows, length, torch.device(device))
            for filters, labels in {"itself excluded": torch.arange(rows, device=device), **groups}.items():
                step(f"{length} bits, {kind}, {filters}")
                timed.append({"bits": length, "codes": kind, "filters": filters, **_timed(codes, labels, repeats)})
                record.write(path, result)
    _show(timed)
    record.finish(path, result)


def _timed(codes: Matrix, labels: Matrix, repeats: int) -> dict[str, float]:
    options: dict[str, Any] = {"query_labels": labels, "reference_labels": labels}
    backend = "cuda" if codes.is_cuda else "cpu"
    check(codes, codes, options, backend)
    return {"seconds": round(seconds_of(lambda: hamming_topk(codes, codes, K, backend=backend, **options), repeats), 6)}


Kind = Callable[[int, int, torch.device], tuple[Matrix, dict[str, Matrix]]]  # codes, and labels worth trying


def _random(n: int, bits: int, device: torch.device) -> tuple[Matrix, dict[str, Matrix]]:
    return drawn(n, bits, device), {}


def _sorted_clusters(n: int, bits: int, device: torch.device) -> tuple[Matrix, dict[str, Matrix]]:
    centres = max(1, n // 100)
    members = torch.arange(n, device=device) * centres // n
    return drawn(centres, bits, device)[members] ^ flips(n, bits, device, 3), {"own cluster excluded": members}


def _tight_cluster(n: int, bits: int, device: torch.device) -> tuple[Matrix, dict[str, Matrix]]:
    return drawn(1, bits, device) ^ flips(n, bits, device, 5), {}


def _forty(n: int, bits: int, device: torch.device) -> tuple[Matrix, dict[str, Matrix]]:
    members = torch.randint(40, (n,), device=device)
    return drawn(40, bits, device)[members], {"own code excluded": members}


def _equal(parity: int) -> Kind:
    def make(n: int, bits: int, device: torch.device) -> tuple[Matrix, dict[str, Matrix]]:
        code = torch.zeros(1, bits // 8, dtype=torch.uint8, device=device)
        code[:, : bits // 16] = 255
        code[0, -1] = parity
        ids = torch.arange(n, device=device)
        return code.expand(n, -1).contiguous(), {"ten labels": ids % 10, "two labels, sorted": ids * 2 // n}

    return make


KINDS: dict[str, Kind] = {
    "random": _random,
    "sorted clusters": _sorted_clusters,
    "one tight cluster": _tight_cluster,
    "forty distinct": _forty,
    "all equal, even weight": _equal(0),
    "all equal, odd weight": _equal(1),
}


def drawn(n: int, bits: int, device: torch.device) -> Matrix:
    """Draw random codes."""
    return torch.randint(256, (n, bits // 8), dtype=torch.uint8, device=device)


def flips(n: int, bits: int, device: torch.device, halvings: int) -> Matrix:
    """Draw bits that are set with probability 2 ** -halvings."""
    found = drawn(n, bits, device)
    for _ in range(halvings - 1):
        found &= drawn(n, bits, device)
    return found


def _show(timed: list[dict[str, Any]]) -> None:
    table = Table("bits", "codes", "left out", "ms", "of random", title=f"k = {K}, from codes to neighbours in order")
    random = {row["bits"]: row["seconds"] for row in timed if row["codes"] == "random"}
    for row in timed:
        milliseconds, ratio = 1000 * row["seconds"], row["seconds"] / random[row["bits"]]
        table.add_row(str(row["bits"]), row["codes"], row["filters"], f"{milliseconds:.1f}", f"{ratio:.2f}x")
    Console(width=100).print(table)


if __name__ == "__main__":
    record.run(main)
