"""Several ranks train one model as one process would, whatever their number, and from each other's checkpoints."""

import importlib
import os
import signal
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lookalike.data.build import paired_texts
from lookalike.data.explicit import with_negatives
from lookalike.training.checkpoints import Checkpoints
from lookalike.training.errors import Interrupted, LostRankError, UnreadableSampleError
from lookalike.training.loop import TrainingLoop
from lookalike.training.run import train
from lookalike.training.team import Team
from lookalike.training.team.heartbeat import Failure
from lookalike.utils.errors import RankFailedError
from tests.ranks import on_ranks
from tests.toys import ToyPart, toy_data, toy_model
from tests.training.runs import metrics, quick, stopping_in

WORLDS = [2, 3]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def smooth_model():
    """Neither dropout nor batch normalisation nor kinks, so that rounding stays rounding."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 16))


def settings_for(**options):
    return quick(**{"epochs": 3, "pairs_per_batch": 7, "learning_rate": 1e-3, **options})


def trained_here(_rank, out, settings, paired=False, model=smooth_model, **options):
    """Train on this rank, or in this process; return nothing: rank 0 leaves the folder."""
    train(toy_data(paired=paired), settings, out=out, model=model(), device="cpu", progress=False, **options)


def weights_of(folder):
    return load_file(folder / "model" / "model.safetensors")


def assert_close(folder, other):
    mine, theirs = weights_of(folder), weights_of(other)
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], **CLOSE)


def without_rounding(folder):
    """What a run has recorded, rounded: floats that differ by rounding become equal."""

    def rounded(value):
        if isinstance(value, dict):
            return {name: rounded(each) for name, each in value.items() if name not in ("machine", "versions")}
        if isinstance(value, list):
            return [rounded(each) for each in value]
        return round(value, 3) if isinstance(value, float) else value

    return [rounded(line) for line in metrics(folder)]


# 30 pairs in batches of 7 leave 2 for the last one: fewer than 3 ranks.
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunk": 2, "mask_above": 0.9},
        {"sampler": "lsh:auto", "target_overlap": 0.75, "track_overlap": True},
        {"sampler": "full"},
        {"sampler": "incremental", "validation_share": 0.2},
    ],
    ids=["lsh", "chunks", "auto", "full", "incremental"],
)
def test_ranks_train_what_one_process_trains(tmp_path, world, paired, options):
    settings = settings_for(**options)
    trained_here(0, tmp_path / "one", settings, paired)
    on_ranks(world, trained_here, tmp_path / "ranks", settings, paired)
    assert_close(tmp_path / "ranks", tmp_path / "one")
    assert without_rounding(tmp_path / "ranks") == without_rounding(tmp_path / "one")


class Looking(nn.Module):
    """A smooth model that hears of nothing but the embeddings it made."""

    def __init__(self):
        super().__init__()
        self.inner, self.unused = smooth_model(), nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x)


def trained_with_unused(_rank, out, settings):
    model = Looking()
    trained_here(0, out, settings, model=lambda: model)
    return all(p.requires_grad for p in model.parameters())


def test_parameters_that_are_not_used_keep_nobody_waiting(tmp_path):
    assert on_ranks(2, trained_with_unused, tmp_path / "ranks", settings_for()) == [True, True]
    trained_here(0, tmp_path / "one", settings_for(), model=Looking)
    assert_close(tmp_path / "ranks", tmp_path / "one")


class OtherView(ToyPart):
    """References of another shape than queries."""

    def references(self, ids, seed=0):
        return self.x[ids][:, :6]

    def plain(self, tower, ids):
        return self.queries(ids) if tower == "query" else self.references(ids)


class ByShape(nn.Module):
    """Has weights that only references use."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.of_queries, self.of_references = nn.Linear(8, 16), nn.Linear(6, 16)

    def forward(self, x):
        return self.of_queries(x) if x.shape[1] == 8 else self.of_references(x)


def trained_by_shape(_rank, out, settings):
    data = toy_data(paired=True)
    train_part, test_part = (OtherView(part.x, part.labels, part.pairs) for part in (data.train, data.test))
    data = replace(data, train=train_part, test=test_part)
    train(data, settings, out=out, model=ByShape(), device="cpu", progress=False)


@pytest.mark.parametrize("chunk", [None, 2])
def test_weights_that_only_references_use_are_trained_too(tmp_path, chunk):
    trained_by_shape(0, tmp_path / "one", settings_for(chunk=chunk))
    on_ranks(2, trained_by_shape, tmp_path / "ranks", settings_for(chunk=chunk))
    assert_close(tmp_path / "ranks", tmp_path / "one")


class Words(nn.Module):
    """Embeds texts by their letters."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.letters = nn.Embedding(128, 16)

    def prepare(self, texts):
        return [torch.tensor([ord(letter) for letter in text]) for text in texts]

    def forward(self, prepared):
        return torch.stack([self.letters(numbers).mean(0) for numbers in prepared])


def trained_on_texts(_rank, out, settings):
    pairs = [(f"question {i} {chr(97 + i)}", f"answer {chr(97 + i)} {i * i}") for i in range(20)]
    data = with_negatives(paired_texts("texts", "texts", pairs, pairs), [[(i + 1) % 20, -1] for i in range(20)])
    train(data, settings, out=out, model=Words(), device="cpu", progress=False)


@pytest.mark.parametrize("chunk", [None, 2])
def test_texts_and_explicit_negatives(tmp_path, chunk):
    settings = settings_for(chunk=chunk, pairs_per_batch=6)
    trained_on_texts(0, tmp_path / "one", settings)
    on_ranks(3, trained_on_texts, tmp_path / "ranks", settings)
    assert_close(tmp_path / "ranks", tmp_path / "one")
    assert without_rounding(tmp_path / "ranks") == without_rounding(tmp_path / "one")


def interrupted_on_one(rank, out, settings, step):
    """Ask one rank to stop; all do, after the same step."""

    def stopping():
        model, calls = smooth_model(), 0

        def count(module, _):
            nonlocal calls
            calls += module.training
            if rank == 1 and module.training and calls == step:
                os.kill(os.getpid(), signal.SIGTERM)

        model.register_forward_pre_hook(count)
        return model

    with pytest.raises(Interrupted, match="SIGTERM"):
        trained_here(rank, out, settings, model=stopping)


@pytest.mark.parametrize("step", [1, 13, 21])
def test_a_checkpoint_of_two_ranks_goes_on_with_three_and_with_one(tmp_path, step):
    settings = settings_for()
    trained_here(0, tmp_path / "whole", settings)
    for name in ("three", "one"):
        on_ranks(2, interrupted_on_one, tmp_path / name, settings, step)
        assert torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["step"] == step
    on_ranks(3, resumed, tmp_path / "three", settings)
    resumed(0, tmp_path / "one", settings)
    for name in ("three", "one"):
        assert_close(tmp_path / name, tmp_path / "whole")
        assert without_rounding(tmp_path / name) == without_rounding(tmp_path / "whole")


def resumed(rank, out, settings):
    trained_here(rank, out, settings, resume=True)


def stopped_with_dropout(rank, out, settings):
    with pytest.raises(Interrupted):
        trained_here(rank, out, settings, model=lambda: stopping_in(6))


def resumed_with_dropout(rank, out, settings):
    trained_here(rank, out, settings, model=toy_model, resume=True)


def test_dropout_and_batch_normalisation_survive_a_stop(tmp_path):
    settings = settings_for(chunk=2)
    on_ranks(2, trained_here, tmp_path / "whole", settings, False, toy_model)
    on_ranks(2, stopped_with_dropout, tmp_path / "parts", settings)
    on_ranks(2, resumed_with_dropout, tmp_path / "parts", settings)
    assert all(
        torch.equal(mine, weights_of(tmp_path / "whole")[name]) for name, mine in weights_of(tmp_path / "parts").items()
    )


def disagreeing(rank, out, settings, data):
    with pytest.raises(ValueError, match="the ranks differ") as raised:
        train(data[rank], settings[rank], out=out, model=smooth_model(), device="cpu", progress=False)
    return str(raised.value)


def test_ranks_that_differ_are_told_so_before_the_first_step(tmp_path):
    data, usual = toy_data(), settings_for()
    relabelled = toy_data()
    relabelled.train.labels[0] = 1
    for name, settings, both in (
        ("seed is 0 on rank 0, 1 on rank 1", [usual, settings_for(seed=1)], [data, data]),
        ("pairs_per_batch is 7 on rank 0, 5 on rank 1", [usual, settings_for(pairs_per_batch=5)], [data, data]),
        ("data_checksum is 30-False on rank 0, 31-False on rank 1", [usual, usual], [data, toy_data(classes=31)]),
        ("labels (checksum) is", [usual, usual], [data, relabelled]),
    ):
        sentences = on_ranks(2, disagreeing, tmp_path / "run", settings, both)
        assert sentences[0] == sentences[1]
        assert name in sentences[0]
    assert not (tmp_path / "run").exists()


def unreadable_on_one(rank, out, settings, step):
    data = toy_data()
    if rank == 1:
        read, calls = type(data.train).queries, 0

        def queries(self, ids, seed=0):
            nonlocal calls
            calls += len(ids) <= settings.pairs_per_batch
            if calls == step:
                raise ValueError("sample 5 is no picture")
            return read(self, ids, seed)

        object.__setattr__(data.train, "queries", queries.__get__(data.train))
    with pytest.raises(UnreadableSampleError if rank == 1 else RankFailedError, match="sample 5 is no picture"):
        train(data, settings, out=out, model=smooth_model(), device="cpu", progress=False)


def test_a_sample_that_one_rank_cannot_read_stops_all_of_them_and_nothing_is_lost(tmp_path):
    settings = settings_for(warm_start="off")
    on_ranks(2, unreadable_on_one, tmp_path / "ranks", settings, 4)
    assert torch.load(tmp_path / "ranks" / "checkpoint.pt", weights_only=True)["step"] == 3
    on_ranks(2, resumed, tmp_path / "ranks", settings)
    trained_here(0, tmp_path / "one", settings)
    assert_close(tmp_path / "ranks", tmp_path / "one")


def stopped_while_the_first_saves(rank, out, settings):
    """Return when the run ended on this rank and, on rank 0, when its last checkpoint was complete."""
    saved, save = [], Checkpoints.save

    def slowly(*arguments):
        time.sleep(0.5)
        save(*arguments)
        saved.append(time.monotonic())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", slowly)
        interrupted_on_one(rank, out, settings, 1)
    return time.monotonic(), saved[-1:]


def test_no_rank_leaves_before_the_first_has_saved(tmp_path):
    (_, [saved]), (ended, _) = on_ranks(2, stopped_while_the_first_saves, tmp_path / "run", settings_for())
    assert ended > saved


def hearing_of_a_loss(_rank, out, settings, step):
    """Hear from the store of a rank that was lost, after a step to which all have contributed."""
    team, take = Team.join("cpu"), TrainingLoop._step

    def hear(self, batch):
        take(self, batch)
        if self.step == step:
            team._heartbeat.failure = Failure("rank 2 was lost", (2,))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", hear)
        with pytest.raises(LostRankError, match="rank 2 was lost"):
            trained_here(0, out, settings)


def test_steps_before_the_news_of_a_lost_rank_are_kept(tmp_path):
    on_ranks(2, hearing_of_a_loss, tmp_path / "run", settings_for(), 3)
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["step"] == 3


def failing_between(rank, out, settings, module, name, call):
    """Fail on rank 1 in the middle of what the sampler does together with all ranks."""
    owner, calls = importlib.import_module(module), 0
    *owners, last = name.split(".")
    for each in owners:
        owner = getattr(owner, each)
    function = getattr(owner, last)

    def fail(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == call:
            raise MemoryError("no room")
        return function(*arguments, **options)

    def begin(self, *arguments):
        if rank == 1:
            patch.setattr(owner, last, fail)
        return run(self, *arguments)

    run = TrainingLoop.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLoop, "run", begin)
        with pytest.raises(MemoryError if rank == 1 else RankFailedError, match="no room"):
            trained_here(rank, out, settings)


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        ("lookalike.samplers.reservoir", "Reservoir.end_epoch", 2),
        ("lookalike.samplers.composition", "mine", 2),
    ],
)
def test_a_sampler_that_fails_between_two_epochs_is_not_saved_half_way(tmp_path, module, name, call):
    settings = settings_for(sampler="lsh:auto", target_overlap=0.75, warm_start="off")
    on_ranks(2, failing_between, tmp_path / "run", settings, module, name, call)
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert state["epoch"] == state["sampler"]["epoch"] + 1
    on_ranks(2, resumed, tmp_path / "run", settings)
    trained_here(0, tmp_path / "one", settings)
    assert_close(tmp_path / "run", tmp_path / "one")
    assert without_rounding(tmp_path / "run") == without_rounding(tmp_path / "one")


def gradients(_rank, chunk, world):
    team = Team.join("cpu") if world > 1 else Team.alone()
    with team.guarded():
        model = smooth_model()
        loop = TrainingLoop(model, toy_data(), quick(chunk=chunk, pairs_per_batch=20), torch.device("cpu"), team=team)
        loop.prepare()
        loop._step(loop.reader.read(torch.arange(40).view(20, 2).flatten(), 0))
        return [*(p.grad for p in (*model.parameters(), *loop.criterion.parameters())), loop._pending[0]]


@pytest.mark.parametrize(("world", "chunk"), [(1, 1), (1, 7), (2, None), (2, 3), (3, 100)])
def test_loss_and_gradients_are_those_of_one_piece(world, chunk):
    whole = gradients(0, None, 1)
    for found in [gradients(0, chunk, 1)] if world == 1 else on_ranks(world, gradients, chunk, world):
        for mine, theirs in zip(found, whole, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
