"""What settings stand for: the optimizer and the learning rate."""

import itertools

import pytest
import torch

from lookalike.training.strategies import make_optimizer, schedule
from tests.toys import toy_model
from tests.training.runs import quick


def test_weights_decay_but_norms_biases_and_temperature_do_not():
    model = toy_model()
    optimizer = make_optimizer([model], quick(), torch.device("cpu"))
    decaying = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert decaying == {id(model[0].weight), id(model[4].weight)}


def test_schedule_rises_then_falls_to_zero():
    rates = [schedule(step, 100, 0.1) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1.0
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    assert rates[100] == 0
    assert schedule(0, 1, 0.0) == 1.0
