"""A data set folder is read by `datasets` and trained on by sentence-transformers as it is."""

import json

import pytest

from lookalike import mine_hard_negatives
from lookalike.mining import MiningInterrupted, text_mining
from lookalike.utils.cards import MODEL, TAG, front_matter
from lookalike.utils.files import TEMPORARY

pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return lambda folder: datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))


def test_datasets_reads_the_rows_that_are_returned_otherwise(dataset, model, tmp_path, load):
    folder = tmp_path / "mined"
    expected = mine_hard_negatives(dataset, model, num_negatives=2, output_format="n-tuple", verbose=False)
    mine_hard_negatives(dataset, model, num_negatives=2, output_format="n-tuple", verbose=False, output=folder)
    read = load(folder)
    assert read.column_names == expected.column_names
    assert read.to_list() == expected.to_list()
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) == [
        "README.md",
        "data/train-00000-of-00001.parquet",
        "manifest.json",
        "summary.json",
    ]
    assert not (tmp_path / "mined.cache").exists()


def test_datasets_reads_several_shards_as_one(dataset, model, tmp_path, load):
    folder = tmp_path / "mined"
    expected = mine_hard_negatives(dataset, model, output_scores=True, verbose=False, block=16)
    mine_hard_negatives(dataset, model, output_scores=True, verbose=False, block=16, output=folder)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert [each["path"] for each in files] == [f"data/train-{i:05}-of-00004.parquet" for i in range(4)]
    assert sum(each["rows"] for each in files) == len(expected)
    assert load(folder).to_list() == expected.to_list()


def test_the_card_says_how_it_was_mined(dataset, model_folder, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    folder, source = tmp_path / "mined", {"input": str(tmp_path / "pairs.jsonl")}
    options = {"relative_margin": 0.05, "verbose": False, "device": "cpu", "source": source}
    summary = mine_hard_negatives(dataset, str(model_folder), output=folder, **options)
    card = hub.DatasetCard.load(folder / "README.md")
    assert card.data.configs[0]["data_files"] == [{"split": "train", "path": "data/train-*"}]
    for line in (
        f"| model | {model_folder.name} |",
        "| relative_margin | 0.05 |",
        "| input | pairs.jsonl |",
        f"| queries | {summary.queries} |",
    ):
        assert line in card.text.splitlines()
    assert "MultipleNegativesRankingLoss" in card.text
    assert str(tmp_path) not in card.content + (folder / "summary.json").read_text()
    assert json.loads((folder / "summary.json").read_text())["queries"] == summary.queries


def test_its_columns_train_as_they_are(dataset, other_model, tmp_path, load):
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    mine_hard_negatives(dataset, other_model, verbose=False, output=tmp_path / "mined", output_scores=True)
    arguments = library.SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "run"),
        max_steps=1,
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    trainer = library.SentenceTransformerTrainer(
        model=other_model,
        args=arguments,
        train_dataset=load(tmp_path / "mined"),
        loss=MultipleNegativesRankingLoss(other_model),
    )
    assert trainer.train().training_loss > 0


def test_an_interrupted_run_leaves_no_half_data_set_and_resumes(dataset, model, tmp_path, monkeypatch):
    folder = tmp_path / "mined"

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(text_mining, "write_card", stop)
        with pytest.raises(MiningInterrupted, match="texts are encoded and kept in"):
            mine_hard_negatives(dataset, model, verbose=False, output=folder)
    assert not folder.exists()
    assert not list(tmp_path.glob(f"*{TEMPORARY}"))
    encoded = []
    monkeypatch.setattr(model, "encode_document", lambda *_, **__: encoded.append(1))
    mine_hard_negatives(dataset, model, verbose=False, output=folder)
    assert (folder / "README.md").exists()
    assert not encoded


def test_only_a_mined_data_set_is_overwritten(dataset, model, tmp_path):
    folder = tmp_path / "mined"
    mine_hard_negatives(dataset, model, verbose=False, output=folder)
    with pytest.raises(ValueError, match="mined exists; force=True overwrites it, output= chooses another folder"):
        mine_hard_negatives(dataset, model, verbose=False, output=folder)
    mine_hard_negatives(dataset, model, verbose=False, output=folder, force=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(ValueError, match="is not a mined data set, so it is not overwritten"):
        mine_hard_negatives(dataset, model, verbose=False, output=tmp_path / "mine", force=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "README.md").write_text(front_matter({"tags": [TAG]}, MODEL))
    with pytest.raises(ValueError, match="is not a mined data set, so it is not overwritten"):
        mine_hard_negatives(dataset, model, verbose=False, output=tmp_path / "model", force=True)


def test_other_libraries_formats_are_files(dataset, model, tmp_path):
    with pytest.raises(ValueError, match=r"output must end in \.jsonl, got mined"):
        mine_hard_negatives(dataset, model, verbose=False, output=tmp_path / "mined", output_format="tevatron")
