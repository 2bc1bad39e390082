"""Write the tables of the documentation: numbers come from the committed results, options from their
dataclasses, the layout from the source.

python -m benchmarks.tables
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import code_tables, epoch_share, installing, layout, options, rank_tables, record, scale
from benchmarks.markdown import markdown
from benchmarks.quality.shown import SHOWN_TABLES
from lookalike.training.comparison_results import HEADINGS, ZERO_SHOT, ComparisonResult, ComparisonRow

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/install.md",
    "docs/strategy.md",
    "docs/cost.md",
    "docs/kernels.md",
    "docs/batches.md",
    "docs/training.md",
    "docs/many_gpus.md",
    "docs/analysis.md",
    "docs/theory.md",
    "docs/data.md",
    "docs/results.md",
    "docs/mining.md",
    "docs/explore.md",
    "docs/index.md",
    "docs/cli.md",
    "docs/design.md",
)
COMPARISONS = {
    "compare_medquad": "medical questions and answers, text",
    "compare_debian": "package descriptions, text",
    "compare_emoji": "emoji of eight vendors, images",
    "compare_grocery": "groceries, photographs, 81 classes",
    "compare_glyphs": "scans of characters, images",
    "compare_cjk": "scans of Chinese characters, images",
}


def main() -> None:
    """Fill in the tables of every page."""
    for page in PAGES:
        (ROOT / page).write_text(rendered((ROOT / page).read_text()))


def rendered(text: str) -> str:
    """Replace every table between `<!-- table: NAME -->` and `<!-- end -->`."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n{TABLES[found[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n(?:(?!<!-- end -->).*\n)*<!-- end -->", table, text)


def _quality() -> str:
    result = record.read("search")
    dim, k, n = (result["settings"][key] for key in ("dim", "k", "n"))
    measured = {row["bits"]: row for row in _search_rows(result, "self-join", threads=1)}
    rows = [["float32, exact", 4 * dim, "100%", "1x", ""]]
    for row in result["quality"]:
        bits = row["bits"]
        rates = measured[bits]["gigapairs_per_second"]
        exact, faiss = rates["ours"] / rates["faiss, exact cosine"], rates["ours"] / _faster_faiss(rates)
        rows.append([f"{bits} bits", bits // 8, f"{row['overlap']:.0%}", f"{exact:.0f}x", f"{faiss:.1f}x"])
    header = [
        "code",
        "bytes per sample",
        f"overlap@{k} with exact",
        "faster than exact cosine",
        "than FAISS' binary search",
    ]
    note = f"{n:,} clustered embeddings of dimension {dim}, the {k} nearest of each, one thread; {_origin(result)}."
    return f"{markdown(header, rows)}\n\n{note}"


def _search(name: str) -> str:
    result = record.read(name)
    settings = result["settings"]
    titles = {
        "self-join": f"{settings['n']:,} in themselves",
        "two tables": f"{settings['queries_two_tables']:,} in {settings['n_two_tables']:,}",
    }
    rows = []
    for case, title in titles.items():
        for threads in sorted({row["threads"] for row in result["search"]}):
            for row in _search_rows(result, case, threads):
                rates = row["gigapairs_per_second"]
                alone, faster = rates["ours"] / rates["ours, distances alone"], _faster_faiss(rates)
                exact = rates.get("faiss, exact cosine")
                rows.append(
                    [
                        title,
                        threads,
                        row["bits"],
                        f"{rates['ours']:.2f}",
                        f"{alone:.0%}",
                        f"{rates['ours'] / rates['faiss']:.1f}x",
                        f"{rates['ours'] / rates['faiss, no heap']:.1f}x",
                        f"{rates['ours'] / faster:.1f}x",
                        f"{rates['ours, distances alone'] / faster:.1f}x",
                        f"{rates['ours'] / exact:.0f}x" if exact else "",
                    ]
                )
    header = [
        "codes",
        "threads",
        "bits",
        "1e9 pairs/s",
        "of it distances",
        "`IndexBinaryFlat`",
        "`use_heap=False`",
        "the faster",
        "if selection were free",
        "exact `IndexFlatIP`",
    ]
    note = (
        f"k = {settings['k']}; how many times faster than FAISS, interleaved in one process, best of "
        f"{settings['repeats']}, CPU time of one thread, load {settings['load'][0]}; {_origin(result, name)}."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _faster_faiss(rates: dict[str, float]) -> float:
    return max(rates["faiss"], rates["faiss, no heap"])


def _search_gpu() -> str:
    result = record.read("search_gpu")
    settings, gpu = result["settings"], result["gpu"]
    peers = list(dict.fromkeys(name for row in result["search"] for name in row["faster_by"]))
    rows = [
        [
            f"{row['queries']:,} in {'themselves' if row['rows'] == row['queries'] else format(row['rows'], ',')}",
            row["bits"],
            f"{1000 * row['seconds']:.1f} ms",
            f"{row['share_of_floor']:.0%}",
            *(f"{row['faster_by'][peer]:.0f}x" if peer in row["faster_by"] else "" for peer in peers),
        ]
        for row in result["search"]
    ]
    header = ["codes", "bits", "time", "of the floor", *peers]
    where = f"{gpu['name']}, CUDA {gpu['cuda']}, torch {result['versions']['torch']}"
    note = (
        f"k = {settings['k']}, from packed codes to sorted neighbours; codes searched in themselves exclude their own "
        f"label. Floor: one-bit products at {settings['bit_products']:.1e} per second. How many times faster than "
        f"exact cosine (matmul + topk, d = {settings['dim']}) and than int8 products of the same codes + topk, both "
        f"timed on {settings['slice']:,} queries. {where}; from `benchmarks/results/search_gpu.json`."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _search_gpu_codes() -> str:
    result = record.read("search_gpu_codes")
    settings, gpu = result["settings"], result["gpu"]
    times = {(row["codes"], row["filters"], row["bits"]): 1000 * row["seconds"] for row in result["search"]}
    lengths = sorted({bits for _, _, bits in times})
    rows = [
        [codes, filters, *(f"{times[codes, filters, bits]:.0f} ms" for bits in lengths)]
        for codes, filters in dict.fromkeys((codes, filters) for codes, filters, _ in times)
    ]
    note = (
        f"{settings['rows']:,} codes in themselves, k = {settings['k']}, median of {settings['repeats']}; "
        f"{gpu['name']}, CUDA {gpu['cuda']}, torch {result['versions']['torch']}; from "
        "`benchmarks/results/search_gpu_codes.json`."
    )
    return f"{markdown(['codes', 'excluded', *(f'{bits} bits' for bits in lengths)], rows)}\n\n{note}"


def _search_streamed() -> str:
    result = record.read("search_streamed")
    settings, gpu = result["settings"], result["gpu"]
    rows = [
        [
            row["reference"],
            f"{row['queries']:,}",
            f"{row['seconds']:.1f} s",
            f"{row['pairs_per_second'] / 1e12:.2f}e12",
        ]
        for row in result["search"]
    ]
    estimate = result["estimate"]
    note = (
        f"{settings['rows']:,} codes of {settings['bits']} bits, half of them random and half in clusters, k = "
        f"{settings['k']}, pages of {settings['page_rows']:,} codes, all with equal answers. The disk was read at "
        f"{result['disk']['read_bytes_per_second'] / 1e9:.1f} GB/s. Computed from these rates, a search of "
        f"{estimate['codes']:,} codes in themselves takes {estimate['compute_hours']:.1f} hours on {estimate['gpus']} "
        f"such GPUs, as {estimate['cells']:,} cells; each GPU reads {estimate['read_bytes'] / 1e12:.1f} TB meanwhile "
        f"and writes {estimate['written_bytes'] / 1e12:.1f} TB. {gpu['name']}, CUDA {gpu['cuda']}, "
        f"torch {result['versions']['torch']}; from `benchmarks/results/search_streamed.json`."
    )
    return f"{markdown(['reference', 'queries', 'time', 'pairs per second'], rows)}\n\n{note}"


def _profile_gpu() -> str:
    result = record.read("profile_gpu")
    gpu, names = result["gpu"], list(dict.fromkeys(name for row in result["search"] for name in row["kernels"]))
    names = [{"survey_marked": "survey"}.get(name, name) for name in names]
    rows = [
        [
            f"{row['rows']:,}",
            row["bits"],
            *(f"{1000 * seconds:.2f}" for seconds in (row["seconds"], *row["kernels"].values())),
        ]
        for row in result["search"]
    ]
    note = (
        f"Milliseconds; random codes in themselves, each excluding one other, k = {result['settings']['k']}; "
        f"{gpu['name']}, CUDA {gpu['cuda']}, torch {result['versions']['torch']}; from "
        "`benchmarks/results/profile_gpu.json`."
    )
    return f"{markdown(['codes', 'bits', 'in all', *(f'`{name}`' for name in names)], rows)}\n\n{note}"


def _guard() -> str:
    result = record.read("guard")
    rows = [
        [
            row["bits"],
            row["guard"],
            f"{row['false_negatives_removed']:.1%}",
            f"{row['true_negatives_lost']:.1%}",
            f"{row['false_share_before']:.2%}",
            f"{row['false_share_after']:.2%}",
        ]
        for row in result["trade_off"]
    ]
    header = ["bits", "guard", "false negatives removed", "true ones lost", "false fraction before", "after"]
    trained = [ComparisonRow.from_json(row).cells()[:6] for row in result["trained"]]
    settings = result["settings"]
    note = (
        f"Counted among the {settings['k']} hard negatives per sample after training without the guard. Trained with "
        f"512 bits, {settings['epochs']} epochs, {result['seeds']} seeds, tested on other classes without identical "
        "shapes; from `benchmarks/results/guard.json`."
    )
    return f"{markdown(header, rows)}\n\n{markdown(['labels', *HEADINGS[1:6]], trained)}\n\n{note}"


def _encode() -> str:
    rows = [
        [row["bits"], row["threads"], f"{row['encode_over_matmul']:.2f}"] for row in record.read("search")["encode"]
    ]
    return markdown(["bits", "threads", "`encode` / matrix product alone"], rows)


def _batches() -> str:
    result = record.read("batches")
    settings = result["settings"]
    rows = [
        [
            row["contender"],
            row["seconds"],
            row["peak_megabytes"],
            row["hits"],
            f"{row['hardest_in_batch']:.1%}",
            row["info_nce"],
        ]
        for row in result["batches"]
    ]
    header = ["composition", "seconds", "peak MB", "true neighbours in batch", "hardest negative in batch", "InfoNCE"]
    note = (
        f"{settings['n']:,} pairs, {settings['k']} neighbours each, batches of {settings['batch_size']}, "
        f"{settings['threads']} threads, from `benchmarks/results/batches.json`."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _large_batches() -> str:
    result = record.read("batches")
    if "large" not in result:
        return ""
    settings = result["settings"]
    header = [f"batches of {settings['large_batch_size']}", "seconds, in turn"]
    rows = [
        [
            "one neighbourhood" if row["neighbourhood"] is None else f"neighbourhoods of {row['neighbourhood']}",
            ", ".join(map(str, row["seconds"])),
        ]
        for row in result["large"]
    ]
    note = f"{settings['n']:,} pairs, {settings['threads']} threads, from `benchmarks/results/batches.json`."
    return f"{markdown(header, rows)}\n\n{note}"


def _plan() -> str:
    result = record.read("plan")
    settings = result["settings"]
    shown = [settings["lengths"].index(bits) for bits in (128, 512, 1024)]
    header = ["embeddings", "n", "dim", *(f"overlap@{settings['k']}, {settings['lengths'][i]} bits" for i in shown)]
    header += ["largest error", "claimed there", "within the claim"]
    rows = []
    for row in result["plan"]:
        worst = max(range(len(row["worst"])), key=row["worst"].__getitem__)
        measured = [f"{row['overlap'][i]:.1%} (off by {100 * row['bias'][i]:+.1f})" for i in shown]
        name = row["data"] if row["seen"] else f"{row['data']} *"
        rows.append(
            [
                name,
                f"{row['n']:,}",
                row["dim"],
                *measured,
                f"{100 * row['worst'][worst]:.1f} points",
                f"± {100 * row['claimed'][worst]:.1f}",
                f"{row['within_claimed']:.0%}",
            ]
        )
    note = (
        f"True overlap ({settings['anchors']:,} anchors) and the mean error, in points, of predictions from "
        f"{settings['reservoirs']} reservoirs of {settings['rows']:,} rows; the largest error is over all reservoirs "
        f"and {len(settings['lengths'])} lengths; * not used before the estimator was chosen; from "
        "`benchmarks/results/plan.json`."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _compared(name: str) -> str:
    result = record.read(name)
    for settings in result["settings"].values():  # results from before the setting was renamed
        settings["pairs_per_batch"] = settings.pop("batch_size", settings.get("pairs_per_batch"))
    return f"{ComparisonResult.from_json(result).as_markdown().strip()} From `benchmarks/results/{name}.json`."


def _gains() -> str:
    """Summarise all comparisons, with the models before training if that was recorded."""
    lines = []
    tables = {name: {row["sampler"]: row for row in record.read(name)["rows"]} for name in COMPARISONS}
    before = [ZERO_SHOT] if any(ZERO_SHOT in rows for rows in tables.values()) else []
    for name, title in COMPARISONS.items():
        rows = tables[name]
        samplers = (*before, "random", "incremental", "lsh:512")
        shown = [f"{100 * rows[each]['recall@1']['mean']:.1f}" if each in rows else "" for each in samplers]
        gain = rows["lsh:512"]["gain_over_random"]
        smaller = rows["incremental"]["kept_bytes"] / rows["lsh:512"]["kept_bytes"]
        difference = f"{100 * gain['mean']:+.1f} ± {100 * gain['standard_error']:.1f}"
        lines.append([title, *shown, difference, f"{smaller:.0f}x"])
    header = ["R@1 on", *before, "random batches", "exact mining", "512 bits", "over random", "less memory"]
    return markdown(header, lines)


def _search_rows(result: dict[str, Any], case: str, threads: int) -> list[dict[str, Any]]:
    return [row for row in result["search"] if row["case"] == case and row["threads"] == threads]


def _origin(result: dict[str, Any], name: str = "search") -> str:
    machine, versions = result["machine"], result["versions"]
    processor = machine["processor"].replace("(R)", "").removesuffix(" Processor")
    return (
        f"{processor}, {machine['cores']} cores with {machine['popcount']}, FAISS {versions['faiss-cpu']}, from "
        f"`benchmarks/results/{name}.json`"
    )


def _msmarco() -> str:
    result = record.read("msmarco")
    settings = result["settings"]
    rows = []
    for case, row in result["rows"].items():
        clock = row["access_microseconds"]["clock"]
        rows.append(
            [
                case,
                f"{row['seconds_load']:.1f} s",
                f"{row['peak_bytes_loaded'] / 1e6:.0f} MB",
                f"{row['peak_bytes'] / 1e6:.0f} MB",
                f"{clock['p50']:.0f} µs",
                f"{clock['p99']:.0f} µs",
                f"{clock['p99.9']:.0f} µs",
                f"{clock['p100']:.0f} µs",
            ]
        )
    header = [
        "",
        "until it can be used",
        "peak memory",
        "after reading all of it",
        "a passage, median",
        "99%",
        "99.9%",
        "slowest",
    ]
    alone = result["rows"]["index in place"]["peak_bytes_after_import"]
    note = (
        f"A synthetic collection of {settings['passages']:,} passages, {settings['bytes'] / 1e9:.1f} GB, questions "
        f"and judgements in proportion; {settings['accesses']:,} random accesses, pages in the system's cache; memory "
        f"with Python and torch, which take {alone / 1e6:.0f} MB alone. {result['machine']['cores']} cores "
        f"(load {settings['load']:.1f}). From "
        "`benchmarks/results/msmarco.json`."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _observe() -> str:
    result = record.read("observe")
    settings = result["settings"]
    rows = [[row["towers"], row["rows_at_a_time"], f"{row['milliseconds']:.2f} ms"] for row in result["observe"]]
    note = (
        f"Host time of a call, {settings['pairs_per_batch']} pairs per batch, dimension {settings['dim']}, "
        f"{settings['bits']} bits; {result['machine']['gpu']}; from `benchmarks/results/observe.json`. There, "
        f'`bits="auto"` plans {result["plan"]["n"]:,} pairs in {result["plan"]["seconds"]:.2f} s, once per epoch.'
    )
    return f"{markdown(['towers', 'rows hashed at a time', '`observe`'], rows)}\n\n{note}"


def _explore() -> str:
    result = record.read("explore")
    settings, busy = result["settings"], ", meanwhile"
    found = {row["request"]: f"{row['median_ms']:.0f} ms, {row['worst_ms']:.0f} ms" for row in result["rows"]}
    rows = [[name, cell, found.get(name + busy, "")] for name, cell in found.items() if not name.endswith(busy)]
    note = (
        f"Median and worst of {settings['repeats']} requests, {settings['n']:,} samples with texts and labels, "
        f"{settings['bits']} bits, {result['machine']['cores']} cores; the background searches with "
        f"{settings['threads']} thread{'s' * (settings['threads'] > 1)} and takes {result['suspects_seconds']:.0f} s; "
        f"the server starts in {result['start_seconds']:.0f} s; from `benchmarks/results/explore.json`."
    )
    return f"{markdown(['request', 'answered in', 'while the background works'], rows)}\n\n{note}"


def _mine() -> str:
    result = record.read("mine")
    settings = result["settings"]
    found = {(row["case"], row["bits"], row["contender"]): row for row in result["quality"]}
    rows = []
    for bits in sorted({row["bits"] for row in result["quality"]}):
        cells: list[Any] = [bits]
        for case, contender in (
            ("default", "ours"),
            ("margin", "ours"),
            ("random", "ours"),
            ("default", "ours, bits alone"),
            ("margin", "ours, bits alone"),
        ):
            row = found[case, bits, contender]
            rows_differ = row["rows"] - row["rows_theirs"]
            counted = "" if not rows_differ else f" ({rows_differ:+,} rows)"
            cells.append(f"{row['same_negatives']:.1%}{counted}")
        rows.append([*cells, f"±{found['default', bits, 'ours, bits alone']['score_error_rms']:.3f}"])
    header = [
        "bits",
        "default",
        "relative_margin=0.05",
        "random of ranks 5 to 50",
        "signs alone",
        "and a margin",
        "error of their scores",
    ]
    note = (
        f"Fraction of sentence-transformers' negatives that are found; as many rows unless noted. {_mined(result)}; "
        f"{settings['pairs']:,} pairs of {settings['query']:,} queries, {settings['corpus']:,} texts to search."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _mine_codes() -> str:
    result = record.read("mine_codes")
    settings = result["settings"]
    found = {(row["case"], row["bytes"], row["code"]): row for row in result["rows"]}
    rows = []
    for size in sorted({row["bytes"] for row in result["rows"]}):
        cells: list[Any] = [f"{size} (of {4 * settings['dim']:,})", 8 * size]
        for code in ("scalar", "signs"):
            for case in ("default", "margin"):
                row = found[case, size, code]
                rows_differ = row["rows"] - row["rows_theirs"]
                cells.append(f"{row['same_negatives']:.1%}{f' ({rows_differ:+,} rows)' if rows_differ else ''}")
            cells.append(f"±{found['default', size, code]['score_error_rms']:.3f}")
        rows.append(cells)
    header = ["bytes per text", "bits", "scalar", "and a margin", "error", "signs", "and a margin", "error"]
    note = (
        "Fraction of sentence-transformers' negatives that are found without floats, by default and with "
        "`relative_margin=0.05`; as many rows unless noted; and the error of scores. MedQuAD's questions and answers "
        f"as all-MiniLM-L6-v2 embeds them, {settings['pairs']:,} pairs of {settings['query']:,} queries, "
        f"{settings['corpus']:,} texts to search, sentence-transformers {result['versions']['sentence-transformers']}; "
        "from `benchmarks/results/mine_codes.json`."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _mine_timed() -> str:
    result = record.read("mine")
    names = {
        "theirs": "sentence-transformers",
        "theirs, FAISS": "with `use_faiss=True`",
        "ours": "lookalike",
        "ours, bits alone": 'with `rescore="codes"`, `code="signs"`',
    }
    rows = [
        [
            names[row["contender"]],
            f"{row['processor_seconds'] - row['processor_seconds_without_encoding']:.0f} s"
            if row["seconds_encoding"]
            else "(kept from before)",
            f"{row['processor_seconds_without_encoding']:.1f} s",
            f"{row['peak_bytes'] / 1e6:,.0f} MB",
        ]
        for row in result["timed"]
    ]
    before = min(row["peak_bytes_before"] for row in result["timed"]) / 1e6
    note = (
        f"{_mined(result)}. Processor time, {result['settings']['threads']} thread; memory with Python, torch and the "
        f"model, which take {before:,.0f} MB before anything is mined."
    )
    header = ["", "encoding", "everything else", "peak memory"]
    return f"{markdown(header, rows)}\n\n{note}"


def _mined(result: dict[str, Any]) -> str:
    settings, versions = result["settings"], result["versions"]
    return (
        f"MedQuAD's questions and answers, {settings['model']} with {settings['tokens']} tokens per text, "
        f"sentence-transformers {versions['sentence-transformers']}; from `benchmarks/results/mine.json`"
    )


def _mine_million() -> str:
    result = record.read("mine_million")
    settings, quality = result["settings"], result["quality"]
    names = {"before": "as one loop, before there were cells", "now": "in one process", "ray": "on Ray, two workers"}
    rows = [
        [
            names[each["contender"]],
            f"{each['seconds'] / 60:.1f} min",
            "" if each["contender"] == "ray" else f"{each['processor_seconds'] / 60:.1f} min",
            "" if each["contender"] == "ray" else f"{each['peak_bytes'] / 2**30:.2f} GiB",
            f"{quality[each['contender']]['same_negatives']:.1%}",
        ]
        for each in result["timed"]
    ]
    equal = "; the files that Ray wrote are those of one process, byte for byte" * bool(result["ray_gives_equal_files"])
    loads = [each["load_before"] for each in result["timed"]]
    note = (
        f"{settings['rows']:,} x {settings['dim']} float32 in a file of {settings['bytes'] / 1e9:.2f} GB, clustered, "
        f"about four of a label; {settings['bits']} bits, {settings['threads']} threads on "
        f"{result['machine']['cores']} cores, load {min(loads):.1f} to {max(loads):.1f} as runs began. Found: of the "
        f"true {settings['num_negatives']} nearest negatives of {settings['sample']} rows{equal}. From "
        "`benchmarks/results/mine_million.json`."
    )
    header = ["mining", "time", "processor time", "peak memory", "found"]
    return f"{markdown(header, rows)}\n\n{note}"


TABLES: dict[str, Callable[[], str]] = {
    "quality": _quality,
    "search": partial(_search, "search"),
    "search_intel": partial(_search, "search_intel"),  # another processor: its ratios are others
    "search_gpu": _search_gpu,
    "search_gpu_codes": _search_gpu_codes,
    "search_streamed": _search_streamed,
    "profile_gpu": _profile_gpu,
    "encode": _encode,
    "guard": _guard,
    "batches": _batches,
    "large_batches": _large_batches,
    "plan": _plan,
    "msmarco": _msmarco,
    "observe": _observe,
    "explore": _explore,
    "gains": _gains,
    "mine": _mine,
    "mine_codes": _mine_codes,
    "mine_timed": _mine_timed,
    "mine_million": _mine_million,
    "hardness": partial(_compared, "hardness"),
    **{name: partial(_compared, name) for name in COMPARISONS},
    **SHOWN_TABLES,
    **options.TABLES,
    **layout.TABLES,
    **installing.TABLES,
    **scale.TABLES,
    **epoch_share.TABLES,
    **rank_tables.TABLES,
    **code_tables.TABLES,
}


if __name__ == "__main__":
    main()
