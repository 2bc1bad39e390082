import json
from pathlib import Path

from lookalike.report import make_report
from lookalike.report.figures.search_time import search_time_by_size
from lookalike.report.records.benchmarks import parse_benchmark
from lookalike.report.records.checks import Checker


def benchmark():
    return {
        "gpu": {"name": "a GPU"},
        "search": [
            {
                "queries": n,
                "rows": n,
                "bits": bits,
                "seconds": n * bits / 1e9,
                "others_seconds": {"cosine, bf16": n / 1e4},
            }
            for n in (1000, 10_000, 100_000)
            for bits in (128, 512)
        ],
    }


def drawn(content):
    return search_time_by_size(parse_benchmark(content, Checker(Path("x"))))


def write_benchmark(folder):
    path = folder / "search_gpu.json"
    path.write_text(json.dumps(benchmark()))
    return path


def test_a_line_per_length_and_exact_search():
    figure = drawn(benchmark())
    assert [row[0] for row in figure.rows] == ["128 bits", "cosine, bf16", "512 bits"]
    assert figure.rows[1][1:] == ["0.1 s", "1 s", "10 s"]
    assert "a GPU" in figure.note
    assert str(figure.svg).count('class="line') == 3


def test_one_size_makes_no_curve():
    content = benchmark()
    content["search"] = content["search"][:2]
    assert drawn(content) is None


def test_the_page_takes_a_benchmark(tmp_path):
    content = make_report([write_benchmark(tmp_path)], tmp_path / "report.html")
    assert [section.id for section in content.sections if section.id == "speed"] == ["speed"]
    assert "Search time by size" in (tmp_path / "report.html").read_text()
