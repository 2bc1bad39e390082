"""`lookalike train`: options, YAML files, what appears on the screen, and mistakes before anything is loaded."""

import contextlib
import json
import re
import shlex
import shutil
import signal
from dataclasses import asdict, fields

import pytest
import torch
import yaml

from lookalike import Settings
from lookalike.training.errors import Interrupted
from tests.cli.runs import NETWORK, QUICK, first_cells, leave_unfinished, outcome
from tests.processes import Child, command_line, held_by_another, wait_until

LONGER = ("--epochs", "16", *QUICK[2:])
OTHERS = {  # a value for every setting that is not its default, and fits the others
    "sampler": "lsh",
    "bits": "auto",
    "code": "scalar",
    "center": 0.5,
    "target_overlap": 0.4,
    "epochs": 2,
    "pairs_per_batch": 6,
    "chunk": 4,
    "learning_rate": 2e-3,
    "weight_decay": 0.02,
    "warmup": 0.1,
    "clip": 0.5,
    "temperature": 0.1,
    "label_smoothing": 0.05,
    "mask_above": 0.95,
    "hardness": 0.75,
    "neighbourhood": 3,
    "warm_start": "on",
    "warm_hardness": 0.25,
    "method": "growth",
    "guard": 0.95,
    "track_overlap": True,
    "evaluate_every": 2,
    "validation_share": 0.2,
    "patience": 4,
    "seed": 3,
    "mixed_precision": False,
}


def as_options(settings):
    """Return settings as they are typed."""
    for name, value in settings.items():
        flag = name.replace("_", "-")
        yield from (f"--{flag}" if value else f"--no-{flag}",) if isinstance(value, bool) else (f"--{flag}", value)


def test_the_run_and_its_baseline_are_reported_each_on_its_own(run_here, glyph_file, tmp_path):
    more = ("--out", tmp_path / "a", "--baseline", "random", "--report-to", "tensorboard")
    code, _, err = run_here("train", glyph_file, *QUICK, *more)
    assert (code, err) == (0, "")
    assert len(list(tmp_path.glob("*/tensorboard/events.*"))) == 2
    assert "report_to" not in json.loads((tmp_path / "a" / "run.json").read_text())


def test_an_unknown_tracker_is_one_line(run_here, glyph_file, tmp_path):
    code, _, err = run_here("train", glyph_file, *QUICK, "--out", tmp_path / "a", "--report-to", "tensorbord")
    assert code == 2
    assert err == (
        "lookalike: --report-to takes tensorboard, wandb, trackio or none, got 'tensorbord'; "
        "did you mean 'tensorboard'?\n"
    )
    assert not (tmp_path / "a").exists()


def test_a_line_tells_what_the_loss_masked(run_here, glyph_file):
    code, out, err = run_here("train", glyph_file, *QUICK, "--mask-above", "0.9")
    assert (code, err) == (0, "")
    lines = re.findall(r"^epoch +[1-9]  R@1 .*%  loss [0-9.]+  masked ([0-9.]+)%  [0-9.]+ s, mining", out, re.MULTILINE)
    assert len(lines) == 3
    assert all(0 < float(share) <= 100 for share in lines)


def test_it_prints_a_line_per_epoch_and_a_table(run_here, glyph_file, tmp_path):
    arguments = ("train", glyph_file, *QUICK, "--sampler", "lsh:64")
    code, out, err = run_here(*arguments, "--baseline", "random")
    assert (code, err) == (0, "")
    assert len(re.findall(r"^epoch +\d  R@1", out, re.MULTILINE)) == 8
    assert "masked" not in out
    assert len(re.findall(r"^epoch   0  R@1 .*%  before training$", out, re.MULTILINE)) == 2
    assert first_cells(out) == ["before training", "lsh:64", "random"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["own-lsh64-seed0", "own-random-seed0"]
    code, _, err = run_here(*arguments)
    assert code == 2
    assert err == (
        "lookalike: runs/own-lsh64-seed0 holds a finished run; --force overwrites it, --out chooses another folder.\n"
    )


def test_with_validation_lines_show_it_and_the_table_shows_the_test(run_here, glyph_file, tmp_path):
    arguments = ("--validation-share", "0.2", "--patience", "1", "--learning-rate", "1e-9", "--epochs", "9")
    code, out, err = run_here("train", glyph_file, *QUICK, *arguments)
    assert (code, err) == (0, "")
    assert "20% of the training classes are held out for validation." in out
    lines = re.findall(r"^epoch +\d  validation R@1 +[\d.]+%  \S+", out, re.MULTILINE)
    result = json.loads(next(tmp_path.glob("runs/*/result.json")).read_text())
    assert len(lines) == 1 + result["epochs"] < 10
    best = f"best epoch by validation: {result['best_epoch']}; stopped early, after epoch {result['epochs']}\n"
    assert best in out
    assert f"{100 * result['metrics']['recall@1']:.2f}" in out[out.index(best) :]


def test_without_data_it_trains_glyphs_and_a_baseline(run_here):
    code, out, err = run_here("train", "--print-config")
    assert (code, err) == (0, "")
    printed = yaml.safe_load(out)
    assert (printed["data"], printed["baseline"], printed["sampler"], printed["bits"]) == (
        "glyphs",
        "random",
        "lsh",
        512,
    )
    assert "baseline" not in yaml.safe_load(run_here("train", "glyphs", "--print-config")[1])


@pytest.fixture(scope="module")
def from_options(glyph_file, tmp_path_factory):
    """Return the folder of a run for which every setting was typed."""
    folder = tmp_path_factory.mktemp("options") / "run"
    with Child(command_line, "train", glyph_file, *NETWORK, "--out", folder, *as_options(OTHERS)) as child:
        assert child.wait() == 0, child.errors
    return folder


def test_every_setting_can_be_typed(from_options):
    assert [each.name for each in fields(Settings)] == list(OTHERS)
    assert all(
        value != getattr(Settings(), name) for name, value in OTHERS.items() if name not in ("sampler", "method")
    )
    config, _ = outcome(from_options)
    assert {name: config[name] for name in OTHERS} == OTHERS


def test_a_file_gives_the_same_run_as_options(run_here, glyph_file, from_options, tmp_path, threads):
    threads(1)  # as in the other process
    model = {"data": str(glyph_file), "model_options": {"width": 8, "dim": 32}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**OTHERS, **model}))
    assert run_here("train", "--config", "run.yaml", "--out", "run")[0] == 0
    assert outcome(tmp_path / "run") == outcome(from_options)


def test_what_is_printed_gives_the_same_run(run_here, glyph_file, from_options, tmp_path, threads):
    threads(1)  # as in the other process
    code, printed, err = run_here("train", glyph_file, *NETWORK, *as_options(OTHERS), "--print-config")
    assert (code, err) == (0, "")
    (tmp_path / "run.yaml").write_text(printed)
    assert run_here("train", "--config", "run.yaml", "--print-config")[1] == printed
    assert run_here("train", "--config", "run.yaml", "--out", "run")[0] == 0
    assert outcome(tmp_path / "run") == outcome(from_options)
    resumed = yaml.safe_load(run_here("train", "--out", "run", "--resume", "--print-config")[1])
    assert resumed == {**yaml.safe_load(printed), "out": "run"}


def test_what_is_typed_goes_before_the_file_and_that_before_the_recipe(run_here, tmp_path):
    (tmp_path / "run.yaml").write_text(
        "data: texts\nepochs: 4\nbits: 256\nmodel_options: {max_length: 64}\nguard: 0.9\n"
    )
    typed = ("--bits", "128", "--model-option", "pretrained=false", "--guard", "none", "--neighbourhood", "none")
    printed = yaml.safe_load(run_here("train", "--config", "run.yaml", *typed, "--print-config")[1])
    assert printed["neighbourhood"] is None
    assert (printed["epochs"], printed["bits"], printed["learning_rate"], printed["guard"]) == (4, 128, 1e-4, None)
    assert printed["model"] == "transformers:distilroberta-base"
    assert printed["model_options"] == {"max_length": 64, "pretrained": False}
    printed = yaml.safe_load(run_here("train", "msmarco", "--config", "run.yaml", "--print-config")[1])
    assert (printed["data"], printed["evaluate_every"], printed["epochs"]) == ("msmarco", 0, 4)
    other = yaml.safe_load(run_here("train", "--config", "run.yaml", "--model", "timm:x", "--print-config")[1])
    assert (other["model"], other["model_options"]) == ("timm:x", {})  # options of another encoder are dropped


def test_paths_are_absolute_so_that_a_run_can_be_continued_from_anywhere(run_here, tmp_path):
    (tmp_path / "model").mkdir()
    arguments = ("texts", "--root", "pairs.jsonl", "--model", "sentence-transformers:model")
    printed = yaml.safe_load(run_here("train", *arguments, "--print-config")[1])
    assert printed["root"] == str(tmp_path / "pairs.jsonl")
    assert printed["model"] == f"sentence-transformers:{tmp_path / 'model'}"
    assert yaml.safe_load(run_here("train", "own.npz", "--print-config")[1])["data"] == str(tmp_path / "own.npz")


def test_the_help_shows_the_defaults_of_a_data_set(run_here):
    def shown(*arguments):
        return " ".join(run_here("train", *arguments, "--help")[1].replace("│", "").split())

    assert "--epochs INT Passes over the training set. (default: by data set)" in shown()
    assert "--epochs INT Passes over the training set. (default: 40)" in shown("cvusa")
    assert "(default: width=24, dim=256)" in shown("glyphs")
    for name, value in asdict(Settings()).items():
        assert f"--{name.replace('_', '-')}" in shown()
        if name in ("weight_decay", "warmup", "temperature", "hardness"):
            assert f"(default: {value})" in shown()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--sampler", "lhs"), "there is no sampler 'lhs' among random, batchhard, full, incremental, lsh, lsh:BITS"),
        (("--sampler", "incremental:64"), "'incremental:64' is not a sampler: only lsh and scalar take a number"),
        (("--baseline", "hard"), "there is no sampler 'hard'"),
        (("glyps",), "there is no data set 'glyps'"),
        (("sop", "--model", "convnet"), "sop is read from a"),
        (("sop", "--model", "resnet"), "there is no encoder 'resnet'; there are the built-in network"),
        (("--model-option", "depth"), "--model-option must be NAME=VALUE, such as size=224, got 'depth'"),
        (("--model-option", "encoder=timm:x"), "encoder is not an option of the model: give it with --model."),
        (("--data-option", "root=."), "root is not an option of the data set: give it with --root."),
        (("--sampler", "lsh:128", "--bits", "512"), "--sampler lsh:128 and --bits 512 contradict each other"),
        (("--sampler", "random", "--hardness", "1"), "--hardness has no effect with the sampler random."),
        (("--sampler", "lsh:64", "--target-overlap", "0.3"), "--target-overlap has no effect with the sampler lsh:64."),
        (("--device", "tpu"), "there is no device 'tpu' here that torch can use"),
        (("--bits", "12"), "bits must be a multiple of 8, got 12"),
        (("--bits", "some"), "--bits must be an integer or auto, got 'some'."),
        (("--seed", "-1"), "seed must be at least 0, got -1"),
        (
            ("--resume", "--force", "--out", "a"),
            "--resume continues a run and --force overwrites it: give one of them.",
        ),
        (
            ("--resume", "--out", "absent"),
            "absent holds no run to continue; to begin one there, name the data to train on.",
        ),
        (("--resume",), "runs/glyphs-lsh512-seed0 holds no run to continue"),
        (("--out", "file"), "file is a file; a run needs a folder."),
        (("--out", "file/run"), "file is a file; a run needs a folder."),
        (("--out", "damaged", "--resume"), "damaged/run.json is damaged (sampler is missing). --force begins"),
        (
            ("--out", "older", "--resume"),
            "older/run.json is damaged, or of another version of lookalike (center is missing). --force begins",
        ),
        (("--out", "wrong", "--resume"), "wrong/run.json is damaged (epochs must be at least 1, got -3). --force"),
        (("--baseline", "lsh"), "--baseline lsh is the run itself: choose another, or --baseline none."),
        (("glyphs", "--baseline", "random", "--out", "runs/glyphs-random-seed0"), "is where the baseline goes"),
        (("--config", "absent.yaml"), "absent.yaml: there is no such configuration file."),
        (("--config", "typo.yaml"), "typo.yaml: there is no option 'epoch'; did you mean 'epochs'?"),
        (("--config", "bad.yaml"), "hardness must be at least 0 and at most 1, got 7"),
    ],
)
@pytest.mark.usefixtures("nothing_loads")
def test_what_was_given_is_checked_before_anything_is_loaded(run_here, tmp_path, arguments, sentence):
    (tmp_path / "file").write_text("")
    (tmp_path / "typo.yaml").write_text("epoch: 3\n")
    (tmp_path / "bad.yaml").write_text("hardness: 7\n")
    wrong = {**asdict(Settings()), "epochs": -3, "data": "glyphs", "model": "", "model_options": {}, "data_options": {}}
    older = {name: value for name, value in wrong.items() if name != "center"}
    for name, content in (("damaged", {}), ("older", older), ("wrong", wrong)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(content))
    code, _, err = run_here("train", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith("lookalike: ")
    assert sentence in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", ["train", "compare"])
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("texts",), "texts is read from a"),
        (("glyphs", "--root", "."), "glyphs is not read from a folder and takes no"),
        (("glyphs", "--guard", "7"), "guard must be above 0 and at most 2, got 7"),
        (("glyphs", "--mask-above", "0"), "mask_above must be above 0 and at most 1, got 0"),
        (("glyphs", "--hardness", "2"), "hardness must be at least 0 and at most 1, got 2"),
        (("glyphs", "--learning-rate", "-1"), "learning_rate must be above 0, got -1"),
        (("glyphs", "--device", "cuda:99"), "there is no device 'cuda:99' here"),
        (("glyphs", "--device", "cuda"), "there is no device 'cuda' here"),
        (("glyphs", "--model-option", "depth=9"), "convnet does not take the option 'depth'"),
        (("glyphs", "--model", "timm:x", "--model-option", "dept=9"), "timm:x does not take the option 'dept'"),
        (("glyphs", "--data-option", "size=9"), "the data set glyphs does not take the option 'size'"),
    ],
)
@pytest.mark.usefixtures("nothing_loads")
def test_what_both_commands_check_first(run_here, tmp_path, command, arguments, sentence):
    if arguments[-1] == "cuda" and torch.cuda.is_available():
        pytest.skip("there is such a device")
    code, _, err = run_here(command, *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert sentence in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--model-option", "width=abc"), "width must be an integer, got str"),
        (("--model-option", "width=9"), "width must be a multiple of 8"),
        (("absent.npz",), "absent.npz: there is no such file of glyphs."),
    ],
)
def test_what_only_loading_shows_is_one_line_too(run_here, tmp_path, arguments, sentence):
    code, _, err = run_here("train", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert sentence in err
    assert not list(tmp_path.glob("runs/*/run.json"))


@pytest.mark.parametrize("command", ["train", "compare"])
def test_data_are_read_before_a_model_is_loaded(run_here, tmp_path, monkeypatch, command):
    monkeypatch.setattr("lookalike.training.run.make_encoder", lambda **_: pytest.fail("a model was loaded"))
    code, _, err = run_here(command, "texts", "--root", "absent.jsonl")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "absent.jsonl: there is no such file" in err
    (tmp_path / "three.csv").write_text("id,title,text\n1,Cats,Cats purr\n2,Dogs,Dogs bark\n")
    code, _, err = run_here(command, "texts", "--root", "three.csv")
    assert code == 2
    assert "has the columns id, title, text" in err


def test_a_baseline_of_other_settings_is_refused_before_anything_is_trained(run_here, glyph_file, tmp_path):
    arguments = ("train", glyph_file, *QUICK[2:], "--baseline", "random", "--seed", "3", "--out", "runs/mine")
    assert run_here(*arguments, "--epochs", "1")[0] == 0
    shutil.rmtree(tmp_path / "runs" / "mine")
    code, out, err = run_here(*arguments, "--epochs", "2")
    assert code == 2
    assert "own-random-seed3 holds a run with other settings: epochs was 1, now 2." in err
    assert "epoch " not in out
    assert run_here(*arguments, "--epochs", "2", "--force")[0] == 0
    metrics = tmp_path / "runs" / "own-random-seed3" / "metrics.jsonl"
    assert len(metrics.read_text().splitlines()) == 3  # forced, the baseline was trained again as well


def test_it_chooses_its_bits(run_here, glyph_file, tmp_path):
    options = ("--bits", "auto", "--target-overlap", "0.3", "--warm-start", "off")
    code, out, err = run_here("train", glyph_file, *QUICK, *options)
    assert (code, err) == (0, "")
    chosen = re.findall(r"^epoch .* (\d+) bits$", out, re.MULTILINE)
    assert chosen[0] == "1024"
    assert int(chosen[2]) < 1024
    _, metrics = outcome(tmp_path / "runs" / "own-lshauto-seed0")
    assert [str(epoch["bits"]) for epoch in metrics[1:]] == chosen


def test_an_unfinished_run_is_continued_as_it_was_begun(run_here, glyph_file, tmp_path):
    folder = tmp_path / "runs" / "own-lsh64-seed0"
    leave_unfinished(glyph_file, folder)
    code, _, err = run_here("train", glyph_file, *QUICK, "--sampler", "lsh:64")
    assert code == 2
    assert "runs/own-lsh64-seed0 holds an unfinished run: --resume continues it; --force overwrites it" in err
    code, _, err = run_here("train", glyph_file, "--sampler", "lsh:64", "--resume", "--epochs", "4")
    assert code == 2
    assert "epochs was 3, now 4" in err
    code, out, err = run_here("train", glyph_file, "--sampler", "lsh:64", "--resume")  # the folder is found
    assert (code, err) == (0, "")
    assert [line[:9] for line in out.splitlines() if line.startswith("epoch")] == ["epoch   2", "epoch   3"]
    assert (folder / "result.json").exists()


def test_a_run_that_was_not_begun_begins(run_here, glyph_file, tmp_path):
    code, out, _ = run_here("train", glyph_file, *QUICK, "--epochs", "1", "--out", "new", "--resume")
    assert code == 0
    assert "new holds no run to continue, so a new one begins." in out
    assert (tmp_path / "new" / "result.json").exists()


def test_stopped_before_its_baseline_it_continues_with_both(run_here, glyph_file, monkeypatch):
    def stop(*_):
        raise Interrupted(signal.SIGINT)

    arguments = ("train", glyph_file, *QUICK, "--sampler", "lsh:64", "--baseline", "random", "--out", "my runs/first")
    with monkeypatch.context() as patch:
        patch.setattr("lookalike.cli.train._print_epoch", stop)
        code, out, _ = run_here(*arguments)
    assert code == 128 + signal.SIGINT
    command = re.search("Continue with: lookalike (.*)\n", out)[1]
    assert command == "train --out 'my runs/first' --resume --baseline random"
    code, out, err = run_here(*shlex.split(command))
    assert (code, err) == (0, "")
    assert first_cells(out) == ["before training", "lsh:64", "random"]
    code, out, err = run_here(*shlex.split(command))  # all is finished, and shown again
    assert (code, err) == (0, "")
    assert not re.search("^epoch", out, re.MULTILINE)


def test_keep_checkpoint(run_here, glyph_file, tmp_path):
    for keep in ("--no-keep-checkpoint", "--keep-checkpoint"):
        assert run_here("train", glyph_file, *QUICK, "--epochs", "1", "--out", "run", "--force", keep)[0] == 0
        assert (tmp_path / "run" / "checkpoint.pt").exists() == (keep == "--keep-checkpoint")


@pytest.mark.parametrize("options", [("--resume",), ("--force",), ()])
def test_a_live_run_is_left_alone(run_here, glyph_file, tmp_path, options):
    (tmp_path / "run").mkdir()
    with held_by_another(tmp_path / "run") as holder:
        code, _, err = run_here("train", glyph_file, *QUICK, "--out", "run", *options)
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"run is in use by process {holder.pid}" in err


@pytest.fixture(scope="module")
def uninterrupted(glyph_file, tmp_path_factory):
    """Return the folder of a run that nothing stops."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    with Child(command_line, "train", glyph_file, *LONGER, "--out", folder) as child:
        assert child.wait() == 0
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_saves_and_says_how_to_continue(run_here, glyph_file, uninterrupted, tmp_path, threads, number):
    threads(1)  # as in the other processes
    part = tmp_path / "part"
    with Child(command_line, "train", glyph_file, *LONGER, "--out", part) as child:
        wait_until(lambda: (part / "metrics.jsonl").exists() and (part / "metrics.jsonl").read_text(), child)
        child.send_signal(number)
        out, err = child.communicate()
        assert child.returncode == 128 + number, err
    assert f"stopped by {number.name}; everything is saved. Continue with: lookalike train --out {part} --re" in out
    assert run_here("train", "--out", part, "--resume")[0] == 0
    assert outcome(part) == outcome(uninterrupted)


def test_the_papers_settings_have_one_name(run_here, glyph_file, tmp_path):
    printed = yaml.safe_load(run_here("train", glyph_file, "--preset", "paper", "--print-config")[1])
    plain = yaml.safe_load(run_here("train", glyph_file, "--print-config")[1])
    changed = {name: value for name, value in printed.items() if value != plain.get(name)}
    assert changed == {"preset": "paper", "neighbourhood": None, "warm_start": "off"}
    typed = run_here("train", glyph_file, "--preset", "paper", "--warm-start", "on", "--print-config")[1]
    assert yaml.safe_load(typed)["warm_start"] == "on"
    (tmp_path / "again.yaml").write_text(typed)
    assert run_here("train", glyph_file, "--config", tmp_path / "again.yaml", "--print-config")[1] == typed
    code, _, err = run_here("train", glyph_file, "--preset", "thesis")
    assert code == 2
    assert "thesis" in err


def test_the_first_epoch_says_whether_the_model_was_ready(run_here, glyph_file):
    """Random pictures are not told apart by an untrained network; `on` uses the codes all the same."""
    lines = {}
    for mode in ("auto", "on", "off"):
        code, out, err = run_here("train", glyph_file, *QUICK, "--warm-start", mode, "--out", f"runs/{mode}")
        assert (code, err) == (0, "")
        lines[mode] = re.findall(r"^epoch   1 .*\)(.*)$", out, re.MULTILINE)
    assert re.fullmatch(r", (not ready: \d+%|warm start( given up)?)", lines["auto"][0])
    assert (lines["on"], lines["off"]) == ([", warm start"], [""])


def test_one_rank_prints_the_configuration_for_all(run_here, monkeypatch):
    monkeypatch.setattr("lookalike.cli.train._together", lambda _: contextlib.nullcontext())
    monkeypatch.setenv("RANK", "1")
    assert run_here("train", "glyphs", "--print-config") == (0, "", "")


def test_marks_are_named_and_a_resumed_run_finds_them(run_here, glyph_file, tmp_path):
    marks = tmp_path / "marks.csv"
    marks.write_text("first,second\n0,30\n")
    code, out, err = run_here("train", glyph_file, *QUICK, "--same", marks, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert "Pairs of training samples that are marked as the same: 1." in out
    assert run_here("train", "--out", tmp_path / "run", "--resume")[0] == 0
    marks.write_text("0,31\n")
    code, _, err = run_here("train", "--out", tmp_path / "run", "--resume")
    assert code != 0
    assert "same was {'pairs': 1, 'checksum': " in err
