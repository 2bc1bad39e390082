"""Devices."""

import torch

from lookalike.utils.machine import seed_device


def test_a_seed_decides_what_the_cpu_draws_as_it_does_in_torch():
    torch.manual_seed(7)
    drawn = torch.rand(3)
    seed_device(torch.device("cpu"), 7)
    assert torch.equal(torch.rand(3), drawn)


def test_a_seed_for_every_step_leaves_no_traces(monkeypatch):
    """Torch keeps a stack trace for devices that are not in use yet."""
    monkeypatch.setattr("traceback.format_stack", lambda *_: 1 / 0)
    seed_device(torch.device("cpu"), 7)
