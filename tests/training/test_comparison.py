"""`compare`: every sampler with every seed, resumed, forced, several at a time."""

import json
import signal
from dataclasses import replace

import pytest

from lookalike.data import DataSource
from lookalike.training.comparison import compare
from lookalike.training.comparison_results import ComparisonResult
from lookalike.training.errors import Interrupted
from lookalike.training.loop import TrainingLoop
from tests.processes import held_by_another, start_server
from tests.toys import toy_data, toy_model, write_glyph_file
from tests.training.runs import names, quick, trained

NETWORK = {"width": 8, "dim": 32}
SETTINGS = quick(epochs=1)


@pytest.fixture(scope="module")
def glyphs(tmp_path_factory):
    return str(write_glyph_file(tmp_path_factory.mktemp("data") / "own.npz"))


def compared(glyphs, out, samplers=("random", "lsh:64"), **options):
    options = {"seeds": 2, "settings": SETTINGS, "model": NETWORK, "progress": False, **options}
    return compare(glyphs, samplers, out=out, **options)


def test_a_comparison_is_a_table_and_is_continued(glyphs, tmp_path, monkeypatch):
    seen = []
    table = compared(glyphs, tmp_path, on_run=lambda name, result: seen.append((name, result.config["seed"])))
    assert seen == [("random", 0), ("lsh:64", 0), ("random", 1), ("lsh:64", 1)]
    assert [row.sampler for row in table.rows] == ["before training", "random", "lsh:64"]
    assert [row.runs for row in table.rows] == [2, 2, 2]
    assert table.rows[2].gain_over_random is not None
    assert (table.data, table.encoder, table.seeds, table.jobs) == ("own.npz", "convnet", 2, 1)
    assert ComparisonResult.from_json(json.loads((tmp_path / "compare.json").read_text())) == table
    assert (tmp_path / "compare.md").read_text() == table.as_markdown()
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "run", lambda *_: pytest.fail("a finished run was trained again"))
        assert compared(glyphs, tmp_path) == table
    with pytest.raises(ValueError, match=r"random-seed0 holds a run with other settings: epochs was 1, now 2"):
        compared(glyphs, tmp_path, settings=replace(SETTINGS, epochs=2))


def test_settings_by_name_are_rows(glyphs, tmp_path):
    samplers = {"half": replace(SETTINGS, hardness=0.5), "neighbourhoods of two": replace(SETTINGS, neighbourhood=2)}
    table = compared(DataSource(glyphs).load(), tmp_path, samplers, seeds=1)
    assert names(tmp_path) == {"half-seed0", "neighbourhoods-of-two-seed0", "compare.json", "compare.md"}
    assert {name: each["neighbourhood"] for name, each in table.settings.items()} == {
        "half": "auto",
        "neighbourhoods of two": 2,
    }


def test_all_rows_are_validated_on_the_same_samples(glyphs, tmp_path):
    seen, settings = [], replace(SETTINGS, validation_share=0.25)
    table = compared(glyphs, tmp_path, settings=settings, on_run=lambda _, result: seen.append(result))
    assert len({result.validation["queries"] for result in seen}) == 1
    before = [
        json.loads((tmp_path / f"{name}-seed0" / "metrics.jsonl").read_text().splitlines()[0])
        for name in ("random", "lsh-64")
    ]
    assert before[0] == before[1]  # the same weights on the same validation part
    assert ", best epoch by validation on 25% of the training part, " in table.conditions()


def test_several_at_a_time_give_the_same(glyphs, tmp_path, monkeypatch):
    monkeypatch.setattr("lookalike.training.jobs.START_METHOD", "forkserver")  # saves the imports
    start_server()
    one = compared(glyphs, tmp_path / "one", ["random"])
    two = compared(glyphs, tmp_path / "two", ["random"], jobs=2)
    assert [row.quality for row in two.rows] == [row.quality for row in one.rows]
    assert two.jobs == 2


def test_force_removes_the_old_comparison_first(glyphs, tmp_path, monkeypatch):
    def stop(*_):
        raise Interrupted(signal.SIGINT)

    compared(glyphs, tmp_path, seeds=1)
    settings = replace(SETTINGS, learning_rate=0.01)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "run", stop)
        with pytest.raises(Interrupted):
            compared(glyphs, tmp_path, seeds=1, settings=settings, force=True)
    assert names(tmp_path) == {"random-seed0", "lsh-64-seed0"}
    assert not list(tmp_path.glob("*/result.json"))
    table = compared(glyphs, tmp_path, seeds=1, settings=settings)
    assert {each["learning_rate"] for each in table.settings.values()} == {0.01}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"samplers": []}, "samplers must name at least one sampler"),
        ({"samplers": ["randm"]}, "there is no sampler 'randm'"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"model": toy_model()}, "compare builds a model for every run: give model= by name or options"),
        ({"model": {"widht": 8}}, "does not take the option 'widht'"),
        (
            {"data": toy_data(), "jobs": 2},
            "data made in Python cannot be loaded by other processes: compare with jobs=1",
        ),
        ({"device": "cuda:99"}, "there is no device 'cuda:99'"),
    ],
)
def test_impossible_arguments_are_noticed_before_anything_is_loaded(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.setattr(DataSource, "load", lambda *_, **__: pytest.fail("data were loaded"))
    arguments = {"data": "glyphs", "samplers": ["random"], "settings": SETTINGS, "model": NETWORK, **arguments}
    with pytest.raises(ValueError, match=sentence):
        compare(**arguments, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_comparison_leaves_other_work_alone(glyphs, tmp_path):
    trained(tmp_path / "run")
    with pytest.raises(ValueError, match=r"run is the folder of a run; .* choose it with out="):
        compared(glyphs, tmp_path / "run")
    for folder in (tmp_path / "out", tmp_path / "out" / "lsh-64-seed1"):
        folder.mkdir(parents=True)
        with held_by_another(folder), pytest.raises(ValueError, match=f"{folder} is in use by process"):
            compared(glyphs, tmp_path / "out", force=True)


def test_names_that_share_a_folder_are_refused(glyphs, tmp_path):
    settings = {"a b": SETTINGS, "a-b": replace(SETTINGS, hardness=0.5)}
    with pytest.raises(ValueError, match="'a b', 'a-b' lead to the same folder"):
        compared(glyphs, tmp_path, settings)
    assert not names(tmp_path)


def test_ranks_of_a_launcher_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="compare runs in a single process: start it without torchrun"):
        compare("glyphs", ["random"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
