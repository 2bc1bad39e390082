import threading
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lookalike.data import load_data
from lookalike.training.errors import UnreadableSampleError
from lookalike.training.loading import moved, read_ahead
from lookalike.training.run import train
from lookalike.training.settings import Settings
from lookalike.training.strategies import make_sampler
from tests.data.miniatures import write_sop
from tests.processes import PATIENCE


@pytest.mark.parametrize("ahead", [0, 1, 3, 99])
def test_results_come_in_order(ahead):
    assert list(read_ahead([lambda i=i: i for i in range(20)], ahead)) == list(range(20))
    assert list(read_ahead([], ahead)) == []


def test_jobs_run_before_they_are_asked_for_and_not_all_at_once():
    done, third = [], threading.Event()

    def job(number):
        done.append(number)
        if number == 2:
            third.set()

    results = read_ahead([partial(job, i) for i in range(10)], ahead=2)
    next(results)
    assert third.wait(PATIENCE)
    results.close()  # ends the thread
    assert done == [0, 1, 2]


def test_a_failure_is_raised_where_its_result_is_due_and_ends_the_thread():
    def fail():
        raise UnreadableSampleError("no such image")

    results = read_ahead([lambda: 1, fail, lambda: 3], ahead=2)
    assert next(results) == 1
    with pytest.raises(UnreadableSampleError, match="no such image"):
        next(results)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lookalike-reading")]


def test_what_is_moved():
    device = torch.device("cpu")
    assert moved(["text"], device) == ["text"]
    assert moved({"ids": torch.ones(2), "kind": "text"}, device)["kind"] == "text"


class Colours(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 8)

    def forward(self, images):
        return self.head(images.float().mean((2, 3)) / 255)


@pytest.mark.parametrize("ahead", [0, 3])
@pytest.mark.parametrize("where", ["first batch", "third batch", "test"])
def test_an_image_that_turns_unreadable_costs_no_step(tmp_path, monkeypatch, where, ahead):
    monkeypatch.setenv("LOOKALIKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("lookalike.training.loop.batches_ahead", lambda _: ahead)
    (tmp_path / "sop").mkdir()
    root = write_sop(tmp_path / "sop")
    settings = Settings(epochs=3, pairs_per_batch=2, bits=64, warm_start="off")

    def trained(out, data, **options):
        torch.manual_seed(0)
        return train(data, settings, out=tmp_path / out, model=Colours(), device="cpu", progress=False, **options)

    whole = trained("whole", load_data("sop", root, size=8))
    data = load_data("sop", root, size=8)
    batches = list(make_sampler(data.train, settings))
    place = {"first batch": 0, "third batch": 2, "test": 0}[where]  # the model is tested before its first step
    trained_on = [max(batch) for batch in batches]  # none of those that are tried beforehand
    number = data.test.query.ids[0] if where == "test" else data.train.query.ids[trained_on[place]]
    victim = data.train.query.items.paths[int(number)]
    content = victim.read_bytes()
    victim.write_bytes(b"damaged")
    for attempt in range(3):
        with pytest.raises(UnreadableSampleError, match=victim.name):
            trained("hurt", load_data("sop", root, size=8), resume=attempt > 0)
        checkpoint = torch.load(tmp_path / "hurt" / "checkpoint.pt", weights_only=True)
        assert (checkpoint["epoch"], checkpoint["step"], checkpoint["sampler"]["cursor"]) == (0, place, place)
    victim.write_bytes(content)
    result = trained("hurt", load_data("sop", root, size=8), resume=True)
    assert result.metrics == whole.metrics
    weights = [load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "hurt")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
