"""Queries and references get the prompt of their tower wherever a run embeds them, and so does the exported model."""

import json

import pytest
import torch

import lookalike
from lookalike.data import DataSource, load_data
from lookalike.data.build import paired_texts
from lookalike.data.explicit import with_negatives
from lookalike.data.parts import Texts, labelled, searched_in_itself
from lookalike.data.retrieval import RetrievalData
from lookalike.evaluation import evaluate
from lookalike.training.embedding import embed_part
from lookalike.training.encoders import check_encoder, make_encoder
from lookalike.training.encoders.prompts import by_their_names, tower_prompts
from lookalike.training.encoders.sentences import SentenceEncoder
from lookalike.training.run import train
from tests.training.encoders.test_saving import TEXTS, trained_on_texts
from tests.training.encoders.tiny import save_text_model
from tests.training.runs import brief, metrics, weights

KINDS = ["sentence-transformers", "transformers"]
PROMPTS = {"query_prompt": "q q: ", "document_prompt": "d: "}
PAIRS = [(f"q {c} {d}", f"r {d} {c}") for c in "abcdefgh" for d in "stuvwxyz"]


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    return save_text_model(tmp_path_factory.mktemp("text") / "model")


@pytest.fixture(scope="module")
def prompted(text_model, tmp_path_factory):
    """A model that carries prompts, as sentence-transformers saves it."""
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("prompted") / "model"
    prompts = {"query": "ask ", "passage": "tell ", "other": "say "}
    library.SentenceTransformer(str(text_model), device="cpu", prompts=prompts).save_pretrained(str(folder))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_the_exported_model_reproduces_the_evaluation(text_model, tmp_path, monkeypatch, kind):
    library = pytest.importorskip("sentence_transformers")
    run = trained_on_texts(tmp_path, f"{kind}:{text_model}", **PROMPTS)
    out = lookalike.export_model(run.path, tmp_path / "exported")
    test = load_data("texts", tmp_path / "pairs.jsonl", test_share=0.4).test
    queries = test.queries(torch.arange(len(test.query_labels)))
    references = test.references(torch.arange(len(test.reference_labels)))
    exported, loaded = library.SentenceTransformer(str(out), device="cpu"), lookalike.load_model(run.path, device="cpu")
    for model in (exported, loaded):
        found = evaluate(
            torch.as_tensor(model.encode_query(queries)),
            torch.as_tensor(model.encode_document(references)),
            test.query_labels,
            test.reference_labels,
        )
        assert found == pytest.approx(run.read_result().metrics)
    plain = loaded.encode(queries)
    assert not torch.allclose(plain, loaded.encode_query(queries), atol=1e-3)
    torch.testing.assert_close(plain, torch.nn.functional.normalize(loaded(queries).detach(), dim=1))
    text = (out / "README.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(text.partition("```python\n")[2].partition("```")[0], {})


@pytest.mark.parametrize("kind", KINDS)
def test_other_formats_say_how_to_use_the_prompts(text_model, tmp_path, monkeypatch, kind):
    pytest.importorskip("sentence_transformers")
    run = trained_on_texts(tmp_path, f"{kind}:{text_model}", **PROMPTS)
    loaded = lookalike.load_model(run.path, device="cpu")
    monkeypatch.chdir(tmp_path)
    for name in ("safetensors", *(["transformers"] if kind == "transformers" else [])):
        lookalike.export_model(run.path, name, format=name)
        found = {}
        exec((tmp_path / name / "README.md").read_text().partition("```python\n")[2].partition("```")[0], found)
        torch.testing.assert_close(found["model"].encode_query(TEXTS), loaded.encode_query(TEXTS), rtol=0, atol=1e-6)


@pytest.mark.parametrize("sampler", ["lsh", "full"])
def test_every_text_of_a_run_gets_the_prompt_of_its_tower(text_model, tmp_path, monkeypatch, sampler):
    pytest.importorskip("sentence_transformers")
    seen = []
    prepare = SentenceEncoder.prepare

    def noted(self, texts, prompt=None):
        seen.extend((text, prompt, self.training) for text in texts if text)
        return prepare(self, texts, prompt)

    monkeypatch.setattr(SentenceEncoder, "prepare", noted)
    data = paired_texts("letters", "letters", PAIRS, PAIRS[:6], negatives=[["r negative"]] * len(PAIRS))
    settings = brief(sampler=sampler, pairs_per_batch=8, warm_start="on", validation_share=0.3)
    model = {"encoder": f"sentence-transformers:{text_model}", **PROMPTS}
    train(data, settings, out=tmp_path / "run", model=model, progress=False)
    of_tower = {"q": PROMPTS["query_prompt"], "r": PROMPTS["document_prompt"]}
    assert {(text[0], prompt) for text, prompt, _ in seen} == set(of_tower.items())
    assert {text for text, _, training in seen if training} >= {"r negative"}
    seen.clear()
    embedded = lookalike.load_model(tmp_path / "run", device="cpu")
    for tower in ("query", "reference"):
        embed_part(embedded, data.train, tower)
    lookalike.advise(data, settings, model=model, sample=128, progress=False)
    assert {(text[0], prompt) for text, prompt, _ in seen} == set(of_tower.items())


def test_the_models_own_prompts_are_used_as_the_library_uses_them(prompted, text_model, tmp_path):
    encoder = make_encoder(f"sentence-transformers:{prompted}")
    assert encoder.tower_prompts == {"query": "ask ", "reference": "tell "}
    library = encoder.model
    for ours, theirs in (
        (encoder.encode_query, library.encode_query),
        (encoder.encode_document, library.encode_document),
    ):
        found = torch.nn.functional.normalize(theirs(TEXTS, convert_to_tensor=True), dim=1)
        torch.testing.assert_close(ours(TEXTS), found, rtol=0, atol=1e-6)
    named = make_encoder(f"sentence-transformers:{prompted}", query_prompt_name="other", document_prompt="")
    assert named.tower_prompts == {"query": "say ", "reference": ""}
    named.save_pretrained(str(tmp_path / "saved"))
    again = make_encoder(f"sentence-transformers:{tmp_path / 'saved'}", query_prompt_name="other", document_prompt="")
    torch.testing.assert_close(again.encode_query(TEXTS), named.encode_query(TEXTS), rtol=0, atol=1e-6)
    expected = named.model.encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(again.model.encode_document(TEXTS, convert_to_tensor=True), expected, rtol=0, atol=1e-6)
    plain = make_encoder(f"sentence-transformers:{text_model}")
    assert plain.tower_prompts == {}
    assert torch.equal(plain.encode_query(TEXTS), plain.encode(TEXTS))


def test_pooling_without_the_prompt_is_that_of_the_library(text_model):
    pytest.importorskip("sentence_transformers")
    encoder = make_encoder(f"sentence-transformers:{text_model}", **PROMPTS)
    whole = encoder.encode_query(TEXTS)
    encoder.model.set_pooling_include_prompt(False)
    found = torch.nn.functional.normalize(encoder.model.encode_query(TEXTS, convert_to_tensor=True), dim=1)
    torch.testing.assert_close(encoder.encode_query(TEXTS), found, rtol=0, atol=1e-6)
    assert not torch.allclose(whole, found, atol=1e-3)


def test_empty_prompts_change_nothing(text_model, tmp_path):
    pytest.importorskip("sentence_transformers")
    folders = []
    for options in ({}, {"query_prompt": "", "document_prompt": ""}):
        folders.append(tmp_path / str(len(folders)))
        folders[-1].mkdir()
        trained_on_texts(folders[-1], f"sentence-transformers:{text_model}", **options)
    assert weights(folders[0] / "run") == weights(folders[1] / "run")
    plain, empty = (
        [{k: v for k, v in each.items() if k != "config"} for each in metrics(folder / "run")] for folder in folders
    )
    assert plain == empty


def test_a_run_is_not_resumed_with_other_prompts(text_model, tmp_path):
    pytest.importorskip("sentence_transformers")
    run = trained_on_texts(tmp_path, f"transformers:{text_model}", **PROMPTS)
    data = DataSource("texts", str(tmp_path / "pairs.jsonl"), {"test_share": 0.4})
    other = {"encoder": f"transformers:{text_model}", **PROMPTS, "query_prompt": "?"}
    settings = lookalike.Settings(epochs=1, pairs_per_batch=4, bits=64, learning_rate=0.01)
    with pytest.raises(ValueError, match="model_options"):
        train(data, settings, out=run.path, model=other, resume=True, progress=False)


def test_labelled_data_get_one_prompt(text_model, tmp_path):
    items, labels = Texts([f"{c} {d}" for c in "abcdefgh" for d in "xyz"]), torch.arange(8).repeat_interleave(3)
    ids = torch.arange(24).numpy()
    test, exclude = searched_in_itself(items, ids, labels)
    data = RetrievalData(
        name="letters",
        description="letters",
        checksum="0",
        train=labelled(items, ids, labels),
        test=test,
        test_exclude=exclude,
    )
    encoder = {"encoder": f"transformers:{text_model}"}
    for run in (
        lambda: train(data, brief(pairs_per_batch=4), out=tmp_path / "run", model=encoder | PROMPTS, progress=False),
        lambda: lookalike.advise(data, brief(pairs_per_batch=4), model=encoder | PROMPTS, sample=128, progress=False),
    ):
        with pytest.raises(ValueError, match="letters has labels and no pairs, so the same texts are queries and") as e:
            run()
        assert "'q q: ' for queries and 'd: ' for documents: set the model's options query_prompt" in str(e.value)
    assert not (tmp_path / "run" / "run.json").exists()
    same = encoder | {"query_prompt": "x", "document_prompt": "x"}
    train(data, brief(pairs_per_batch=4), out=tmp_path / "run", model=same, progress=False)


def test_mistakes(prompted, text_model):
    name = f"sentence-transformers:{prompted}"
    with pytest.raises(ValueError, match=r"has no prompt 'pasage', which document_prompt_name= names; its prompts are"):
        make_encoder(name, document_prompt_name="pasage")
    with pytest.raises(ValueError, match="query_prompt is a text and query_prompt_name the name of one: give one"):
        check_encoder(name, query_prompt="a", query_prompt_name="query")
    with pytest.raises(TypeError, match="document_prompt must be a text, got 3"):
        check_encoder(name, document_prompt=3)
    with pytest.raises(ValueError, match="does not take the option 'query_prompt_name'"):
        check_encoder(f"transformers:{text_model}", query_prompt_name="query")
    with pytest.raises(ValueError, match="m has no prompt 'x', which query_prompt_name= names; it has none"):
        tower_prompts({}, "m", {"query_prompt_name": "x"})


def test_towers_without_a_prompt_are_left_out():
    assert tower_prompts({"query": "", "document": ""}, "m", {}) == {}
    assert tower_prompts({"corpus": "c", "document": ""}, "m", {"query_prompt": ""}) == {"query": "", "reference": "c"}
    assert by_their_names({"reference": "c"}) == {"document": "c"}


def test_the_command_line(text_model, tmp_path, monkeypatch):
    from lookalike.cli import main

    rows = [{"query": q, "reference": r} for q, r in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    options = ["--model-option", "query_prompt=q q: ", "--model-option", "document_prompt=d: "]
    quick = ["--epochs", "1", "--pairs-per-batch", "4", "--data-option", "test_share=0.4", "--device", "cpu"]
    typed = ["train", "texts", "--root", "pairs.jsonl", "--model", f"transformers:{text_model}", "--out", "run"]
    main([*typed, *quick, *options])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model_options"].items() >= PROMPTS.items()
    assert lookalike.load_model("run", device="cpu").tower_prompts == {"query": "q q: ", "reference": "d: "}


def test_explicit_negatives_by_number_are_references(text_model):
    data = with_negatives(paired_texts("l", "l", PAIRS, PAIRS[:3]), torch.tensor([[1]] * len(PAIRS)).numpy())
    from lookalike.training.reading import BatchReader
    from lookalike.training.team import Team

    encoder = make_encoder(f"transformers:{text_model}", **PROMPTS)
    batch = BatchReader(data, data.train, encoder, 0, 2, Team.alone()).read(torch.arange(4), 0)
    for chunk in batch.chunks:
        towers = [encoder.tokenizer.batch_decode(x["input_ids"], skip_special_tokens=True) for x in chunk]
        assert [{text.split()[0] for text in texts} for texts in towers] == [{"q"}, {"d"}, {"d"}]
