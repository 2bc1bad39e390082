"""Cells are made from plain dictionaries, trained by one pool, and their results fill tables that can be shown."""

import json
import time
from dataclasses import replace

import pytest
import torch

from benchmarks.quality import __main__ as command
from benchmarks.quality import declared, shown
from benchmarks.quality import explored as explored_tables
from benchmarks.quality.cells import distinct, expanded, read_cells
from benchmarks.quality.figure import draw
from benchmarks.quality.pool import take_next
from benchmarks.quality.records import KEPT, Records
from benchmarks.quality.tokens import KeptTokens
from benchmarks.quality.triplets import nearest_below
from benchmarks.quality.worker import Outcome
from lookalike.training.comparison_results import METRICS, ZERO_SHOT, ComparisonResult
from tests.toys import write_glyph_file

RANDOM = {"random": {"sampler": "random"}}


def cells(entry, table="t"):
    return list(expanded(table, entry))


def outcome(cell, recall=0.5):
    quality = dict.fromkeys(METRICS, recall)
    config = {"seed": cell.settings.seed, "data_checksum": "0", "model": "a model"}
    result = {"config": config, "metrics": quality, "zero_shot": dict.fromkeys(METRICS, 0.1), "seconds": 2.0}
    history = [
        {"epoch": 0, **result["zero_shot"]},
        {"epoch": 1, "seconds": 2.0, "mining_seconds": 0.5, "hardest_negative": 0.4, **quality},
    ]
    machine = {"machine": {"processor": "a processor"}, "kept_bytes": 8}
    notes = {"warm_start_seconds": 0.5}
    return Outcome(result=result | machine, history=history, notes=notes, description="some data")


def test_rows_and_seeds_become_cells():
    made = cells({"data": "emoji", "seeds": [0, 7], "settings": {"epochs": 2}, "rows": {**RANDOM, "default": {}}})
    assert [(cell.row, cell.settings.seed) for cell in made] == [
        ("random", 0),
        ("default", 0),
        ("random", 7),
        ("default", 7),
    ]
    assert {cell.part for cell in made} == {"32 pairs per batch, learning rate 0.0003, 2 epochs"}
    assert made[0].settings.sampler == "random"
    assert made[0].model["weights"] == "tf_efficientnet_lite0.safetensors"
    assert len({cell.folder for cell in made}) == 4


def test_a_setting_without_effect_does_not_make_another_run():
    first, second = (cells({"data": "glyphs", "settings": {"bits": bits}, "rows": RANDOM})[0] for bits in (128, 512))
    assert first.key == second.key
    assert first.folder != second.folder
    assert len(distinct([first, second])) == 1
    mined = [cells({"data": "glyphs", "settings": {"bits": bits}, "rows": {"lsh": {}}})[0].key for bits in (128, 512)]
    assert mined[0] != mined[1]


def test_yaml_keeps_what_was_meant(tmp_path):
    path = tmp_path / "explored.yaml"
    path.write_text("- data: glyphs\n  settings: {learning_rate: 3e-4}\n  rows:\n    on: {warm_start: off}\n")
    (cell,) = read_cells(path)
    assert (cell.table, cell.row) == ("explored", "on")
    assert (cell.settings.learning_rate, cell.settings.warm_start) == (3e-4, "off")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"data": "glyphs", "row": RANDOM}, "there is no entry 'row' among data, rows"),
        ({"data": "glyph", "rows": RANDOM}, "there is no data set 'glyph' among medquad"),
        ({"data": "glyphs", "rows": {"a": {"bit": 3}}}, "there is no setting 'bit'"),
    ],
)
def test_mistakes_in_entries_are_said(entry, sentence):
    with pytest.raises(ValueError, match=sentence):
        cells(entry)


def test_the_longest_cell_begins_and_loaded_data_are_preferred():
    texts, images = (cells({"data": data, "rows": RANDOM})[0] for data in ("debian", "emoji"))
    longer = replace(images, settings=replace(images.settings, epochs=14))
    waiting = [longer, texts, images]
    assert longer.seconds > texts.seconds > 0.5 * longer.seconds
    assert take_next(list(waiting), set()) is longer
    assert take_next(waiting, {str(texts.source)}) is texts
    assert waiting == [longer, images]
    short = replace(texts, settings=replace(texts.settings, epochs=1))
    assert take_next([longer, short], {str(texts.source)}) is longer  # too short to go first


def test_results_fill_tables_and_are_known_elsewhere(tmp_path):
    own = cells({"data": "emoji", "part": "a part", "seeds": 2, "rows": {**RANDOM, "default": {}}})
    records = Records([tmp_path / "runs", tmp_path / "out"])
    for cell in own[:3]:
        records.add(cell, outcome(cell, 0.2 + 0.1 * cell.settings.seed), jobs=4)
    known = Records([tmp_path / "other"], [tmp_path / "out" / KEPT])
    assert [cell in known for cell in own] == [True, True, True, False]
    table = known.table("t", own)
    assert table["missing"] == ["a part: default, seed 1"]
    part = ComparisonResult.from_json(table["parts"]["a part"])
    assert [(row.sampler, row.runs) for row in part.rows] == [(ZERO_SHOT, 2), ("random", 2), ("default", 1)]
    assert part.rows[1].quality["recall@1"].values == pytest.approx([0.2, 0.3])
    assert (part.jobs, part.data, part.description) == (4, "sop", "some data")
    assert table["parts"]["a part"]["rows"][1]["by_epoch"] == [[0.1, 0.2], [0.1, pytest.approx(0.3)]]
    assert "timed" not in table["parts"]["a part"]["rows"][1]
    assert "R@1 10.00 20.00 | R@10 20.00" in known.line(own[0])


def filled(name, folder, jobs=4):
    records = Records([folder])
    for place, cell in enumerate(cells := distinct(declared.cells_of(name))):
        records.add(cell, outcome(cell, 0.3 + place / (10 * len(cells))), jobs)
    (folder / f"{name}.json").write_text(json.dumps(records.table(name, declared.cells_of(name))))


def test_tables_are_empty_until_there_are_results(tmp_path, monkeypatch):
    monkeypatch.setattr(shown.record, "RESULTS", tmp_path)
    monkeypatch.setattr(shown, "DOCS", tmp_path)
    assert {name: show() for name, show in shown.SHOWN_TABLES.items()} == dict.fromkeys(shown.SHOWN_TABLES, "")


def test_tables_show_results(tmp_path, monkeypatch):
    monkeypatch.setattr(shown.record, "RESULTS", tmp_path)
    for name, jobs in (("quality_medquad", 16), ("emoji_rates", 16), ("cost", 1)):
        filled(name, tmp_path, jobs)
    lines = shown.table("quality_medquad").splitlines()
    assert lines[0].count("MRR@10, ") == 2
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| before training", "| random", "| exact incremental"]
    assert lines[-1].endswith("16 runs at a time; from `benchmarks/results/quality_medquad.json`.")
    assert (
        shown.overview()
        .splitlines()[2]
        .startswith("| medquad | 64 | 10.0 / 10.0 | 35.8 / 35.8 | 37.1 / 37.1 | 38.3 / 38.3 | +1.2")
    )
    assert len(shown.table("emoji_rates", ("recall@1",)).splitlines()[0].split("|")) == 6
    assert "| medquad | default | 1.5 s | 0.5 s, 33% | 0.00 s, 0.0% |" in shown.cost()


def test_the_figure_is_drawn_from_results(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no one_epoch_medquad"):
        draw(tmp_path / "figure.svg", tmp_path)
    filled("one_epoch_medquad", tmp_path)
    draw(tmp_path / "figure.svg", tmp_path)
    drawn = (tmp_path / "figure.svg").read_text()
    assert all(
        name in drawn
        for name in ("default", "offline triplets, 3 negatives", "random share", "Medical questions, batches of 64")
    )


def explored(hardness, recall, **more):
    config = {"data": "texts", "sampler": "lsh", "epochs": 1, "pairs_per_batch": 64, "learning_rate": 5e-5}
    config |= {"warm_start": "on", "x_probation": 0, "neighbourhood": 32, "center": 1.0, "hardness": hardness}
    config |= {"mask_above": None, "model_options": {}, **more}
    return json.dumps({"result": {"config": config, "metrics": {"recall@1": recall, "recall@10": 0.9}}}) + "\n"


def test_runs_that_chose_the_defaults_are_shown_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(shown.record, "RESULTS", tmp_path)
    assert [explored_tables.exploration(), explored_tables.flips(), explored_tables.readiness()] == ["", "", ""]
    equal = explored(0.75, 0.5) + explored(0.75, 0.6)
    (tmp_path / "exploration.jsonl").write_text(equal + explored(1.0, 0.4, neighbourhood=None, warm_start="off"))
    lines = explored_tables.exploration().splitlines()
    assert lines[2:4] == [
        "| debian | 64 | 5e-05 | 1 | first epoch random, one neighbourhood | 40.0 | 90.0 | 1 |",
        "| debian | 64 | 5e-05 | 1 | warm start, neighbourhoods of 32, hardness 0.75 | 55.0 | 90.0 | 2 |",
    ]
    filled("one_epoch_debian", tmp_path)
    content = json.loads((tmp_path / "one_epoch_debian.json").read_text())
    for part in content["parts"].values():
        part["rows"] = [row for row in part["rows"] if "share" not in row["sampler"]]
    (tmp_path / "one_epoch_debian.json").write_text(json.dumps(content))
    draw(tmp_path / "figure.svg", tmp_path)
    assert ">0.25<" in (tmp_path / "figure.svg").read_text()


def test_readiness_is_collected_from_kept_runs(tmp_path, monkeypatch):
    notes = {"beats": {"32": 0.9}, "is_used": False, "flips": [0.3, 0.4]}
    config = {"data": "folder", "pairs_per_batch": 16, "learning_rate": 1e-4, "epochs": 8, "seed": 0}
    kept = [{"key": "a", "notes": notes, "result": {"config": config}}, {"key": "b", "notes": {}, "result": {}}]
    (tmp_path / KEPT).write_text("".join(json.dumps(each) + "\n" for each in kept))
    collected = explored_tables.collected([tmp_path / KEPT, tmp_path / KEPT])
    (run,) = collected["runs"]
    assert (run["data"], run["was_ready"], run["was_mined_to_the_end"]) == ("grocery", True, False)
    (tmp_path / "readiness.json").write_text(json.dumps(collected))
    monkeypatch.setattr(shown.record, "RESULTS", tmp_path)
    assert "| grocery * | 0.90 | 1 | mined, given up at look 2 in 1 of 1 runs |" in explored_tables.readiness()


def test_every_table_can_be_expanded():
    for name in declared.TABLES:
        assert all(cell.table == name for cell in declared.cells_of(name))
    default = next(cell for cell in declared.cells_of("quality_debian") if cell.row == "default")
    assert default.settings.learning_rate == 5e-5


def test_tokens_are_kept_and_padded_as_before():
    def prepare(texts):
        length = max(map(len, texts))
        ids = torch.tensor([[ord(letter) for letter in text] + [0] * (length - len(text)) for text in texts])
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "token_type_ids": 0 * ids, "modality": "text"}

    calls = []
    kept = KeptTokens(lambda texts: calls.append(texts) or prepare(texts))
    for texts in (["ab", "c", "ab"], ["c", "c"], ["abcd", "ab"]):
        found, expected = kept(texts), prepare(texts)
        assert found.keys() == expected.keys()
        assert found["modality"] == "text"
        assert all(torch.equal(found[name], expected[name]) for name in expected if name != "modality")
    assert calls == [["ab", "c"], ["abcd"]]


def test_mined_negatives_are_nearest_below_the_margin():
    generator = torch.Generator().manual_seed(0)
    query, reference = torch.nn.functional.normalize(torch.randn(2, 40, 6, generator=generator), dim=2)
    labels = torch.arange(40) // 2
    places = torch.arange(0, 40, 3)
    found = nearest_below(query, reference, labels, places)
    similarity = query @ reference.T
    for row, negatives in enumerate(found.tolist()):
        allowed = [
            (-float(similarity[row, place]), place)
            for place in places.tolist()
            if labels[place] != labels[row] and similarity[row, place] <= 0.95 * similarity[row, row]
        ]
        assert negatives == ([place for _, place in sorted(allowed)] + [-1] * 3)[:3]


def test_a_cell_that_fails_leaves_the_others_alone(tmp_path, capsys):
    write_glyph_file(tmp_path / "cjk_glyphs32.npz", classes=20)
    path = tmp_path / "try.yaml"
    settings = "{epochs: 1, pairs_per_batch: 8}"
    rows = "{random: {sampler: random}, broken: {learning_rate: 1e9, clip: 0, epochs: 2}}"
    path.write_text(f"- {{data: cjk, settings: {settings}, rows: {rows}}}\n")
    folders = {"runs": tmp_path / "runs", "jobs": 1, "out": tmp_path / "out"}
    with pytest.raises(SystemExit, match=r"^1$"):
        command.run(path, tmp_path, limit=0, **folders)
    assert "0 cells trained, 0 failed, 2 left" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"^1$"):
        command.run(path, tmp_path, limit=300, **folders)
    printed = capsys.readouterr().out
    assert "1 cells trained, 1 failed, 0 left" in printed
    assert "cjk, broken failed:" in printed
    assert "DivergenceError" in printed
    table = json.loads((tmp_path / "out" / "try.json").read_text())
    assert len(table["missing"]) == 1
    (run,) = (tmp_path / "runs").glob("cjk-random-*")
    assert not (run / "model").exists()
    began = time.monotonic()
    only = tmp_path / "only.yaml"
    only.write_text(f"- {{data: cjk, settings: {settings}, rows: {{random: {{sampler: random}}}}}}\n")
    command.run(only, tmp_path, **folders)
    assert "1 cells, 0 to train" in capsys.readouterr().out
    assert time.monotonic() - began < 60
