"""Anchors, their positives and their negatives, in bits and exactly."""

import dataclasses
import json
import shutil

import pytest
import torch

from lookalike.data import DataSource, load_data
from lookalike.report import make_report
from lookalike.report.gallery import ANCHORS, NEGATIVES, Example, Gallery, as_sample, make_gallery
from lookalike.report.page import build_report, render
from lookalike.report.records.reader import Records, read_records
from lookalike.training.results import EpochMetrics
from lookalike.training.run import train
from lookalike.training.run_folder import CONFIG
from lookalike.training.settings import Settings
from tests.report.conftest import NETWORK, SMALL


def the_run(path):
    return read_records([path]).runs[0]


def page_of(gallery):
    return render(build_report(Records([], [], [], [], []), gallery))


def test_negatives_are_of_other_labels_and_the_exact_ones_nearest(made):
    run = the_run(made / "half")
    gallery = make_gallery(run)
    labels = load_data(run.config.data).train.labels
    assert gallery.bits == 64
    assert len(gallery.examples) == ANCHORS
    assert len({int(labels[e.anchor.id]) for e in gallery.examples}) == ANCHORS
    for e in gallery.examples:
        assert labels[e.positive.id] == labels[e.anchor.id]
        assert e.positive.id != e.anchor.id
        assert len(e.by_bits) == len(e.exact) == NEGATIVES
        assert all(labels[shown.id] != labels[e.anchor.id] for shown in (*e.by_bits, *e.exact))
        cosines = [shown.cosine for shown in e.exact]
        assert cosines == sorted(cosines, reverse=True)
        assert cosines[-1] >= max((s.cosine for s in e.by_bits if not s.shared), default=-1)
        shared = {s.id for s in e.by_bits} & {s.id for s in e.exact}
        assert shared == {s.id for s in e.by_bits if s.shared} == {s.id for s in e.exact if s.shared}
    hardest = [e.exact[0].cosine for e in gallery.examples]
    assert hardest == sorted(hardest, reverse=True)
    html = page_of(gallery)
    assert html.count("<img") == ANCHORS * (2 + 2 * NEGATIVES)
    assert html.count("data:image/png;base64,") == html.count("<img")
    assert html.count('class="ink"') == html.count("<img")


def test_paired_data_have_anchors_and_positives_of_one_pair(made, tmp_path):
    source = DataSource(str(made / "own.npz"), options={"paired": True})
    train(source, Settings(**SMALL), out=tmp_path / "run", model=NETWORK, progress=False)
    gallery = make_gallery(the_run(tmp_path / "run"))
    assert all(e.anchor.id == e.positive.id for e in gallery.examples)
    assert all(shown.id != e.anchor.id for e in gallery.examples for shown in (*e.by_bits, *e.exact))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("data", "absent.npz", "absent.npz: there is no such file of glyphs."),
        ("data", "other", "there is no data set"),
        ("data_checksum", "other", "is not what the run was trained on"),
        ("model", "Transformer of 7 parameters", "cannot be rebuilt from its options"),
        ("model_options", {"width": 16}, "size mismatch"),
    ],
)
def test_the_page_says_why_there_is_none(made, tmp_path, name, value, reason):
    run = shutil.copytree(made / "half", tmp_path / "run")
    config = json.loads((run / CONFIG).read_text())
    (run / CONFIG).write_text(json.dumps({**config, name: value}))
    content = make_report([run], tmp_path / "r.html")
    section = next(section for section in content.sections if section.id == "gallery")
    assert "could not be made" in section.gallery.reason
    assert reason in section.gallery.reason
    assert 'class="absent"' in (tmp_path / "r.html").read_text()


def test_text_is_shown_as_text(made):
    run = the_run(made / "half")
    shown = [as_sample(i, f"a < {i}\n  and " + "long " * (100 * i)) for i in range(2)]
    html = page_of(Gallery(run, 64, [Example(shown[0], shown[1], shown, shown)]))
    assert 'class="gallery text-gallery"' in html
    assert "a &lt; 0 and" in html
    assert "…</span>" in html
    assert "<img" not in html


def test_pictures_have_colours_where_images_do():
    assert as_sample(0, torch.rand(1, 32, 32)).is_ink
    assert not as_sample(0, torch.rand(3, 200, 300)).is_ink


def test_bits_that_training_chose_are_those_of_its_last_epoch(made):
    run = the_run(made / "half")
    gallery = make_gallery(
        dataclasses.replace(
            run, config=dataclasses.replace(run.config, bits="auto"), epochs=[EpochMetrics(epoch=1, bits=128)]
        )
    )
    assert gallery.bits == 128
