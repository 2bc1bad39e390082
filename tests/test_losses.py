import itertools
import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from lookalike import InfoNCE
from lookalike.utils.lists import make_lists
from tests.ranks import on_ranks


def plain(query, reference, temperature, smoothing, hard_fraction=None):
    """The loss from queries to references by a double loop."""
    n = len(query)
    total = 0.0
    for i in range(n):
        others = [j for j in range(n) if j != i]
        kept = others if hard_fraction is None else hardest(query[i], reference, others, hard_fraction)
        total += plain_row(query[i], reference[[i, *kept]], temperature, smoothing)
    return total / n


def hardest(anchor, reference, others, fraction):
    kept = math.ceil(fraction * (len(reference) - 1))
    return sorted(others, key=lambda j: -float(cosine_similarity(anchor, reference[j], dim=0)))[:kept]


def plain_row(anchor, shown, temperature, smoothing):
    """The loss of one anchor whose positive comes first."""
    logits = [float(cosine_similarity(anchor, other, dim=0)) / temperature for other in shown]
    log_sum = math.log(sum(math.exp(value) for value in logits))
    target = [smoothing / len(logits)] * len(logits)
    target[0] += 1 - smoothing
    return sum(share * (log_sum - value) for share, value in zip(target, logits, strict=True))


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("hard_fraction", [None, 0.5, 1.0, 0.01])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("symmetric", [False, True])
def test_equals_a_double_loop(n, hard_fraction, smoothing, symmetric):
    torch.manual_seed(n)
    query, reference = torch.randn(n, 5), torch.randn(n, 5)
    criterion = InfoNCE(0.2, label_smoothing=smoothing, symmetric=symmetric, hard_fraction=hard_fraction)
    expected = plain(query, reference, 0.2, smoothing, hard_fraction)
    if symmetric:
        expected = (expected + plain(reference, query, 0.2, smoothing, hard_fraction)) / 2
    assert criterion(query, reference).item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def transposed(rows):
    return [[i for i, row in enumerate(rows) if j in row] for j in range(len(rows))]


@pytest.mark.parametrize("hard_fraction", [None, 0.5])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_excluded_references_are_left_out(hard_fraction, smoothing):
    torch.manual_seed(0)
    query, reference = torch.randn(6, 5, requires_grad=True), torch.randn(6, 5)
    rows = [[3], [], [2], [0], [], []]  # a positive stays one
    criterion = InfoNCE(0.2, label_smoothing=smoothing, symmetric=False, hard_fraction=hard_fraction)
    loss = criterion(query, reference, make_lists(rows))
    expected = []
    for i in range(6):
        others = [j for j in range(6) if j != i and j not in rows[i]]
        kept = others if hard_fraction is None else hardest(query[i].detach(), reference, others, hard_fraction)
        expected.append(plain_row(query[i].detach(), reference[[i, *kept]], 0.2, smoothing))
    assert loss.item() == pytest.approx(sum(expected) / 6, rel=1e-5)
    loss.backward()
    assert torch.isfinite(query.grad).all()
    rows[1] = [4]  # a query excludes a reference, but not the other way round
    both = InfoNCE(0.2, label_smoothing=smoothing, hard_fraction=hard_fraction)(query, reference, make_lists(rows))
    there = criterion(query, reference, exclude=make_lists(rows))
    back = criterion(reference, query, exclude=make_lists(transposed(rows)))
    assert both.item() == pytest.approx((there + back).item() / 2)
    nothing = criterion(query, reference, exclude=make_lists([[]] * 6))
    assert nothing.item() == pytest.approx(criterion(query, reference).item())
    with pytest.raises(ValueError, match=r"exclude offsets must have length 7 \(rows \+ 1\), got 6"):
        criterion(query, reference, exclude=make_lists(rows[:5]))
    with pytest.raises(ValueError, match="exclude ids must be between 0 and 5, got 0 to 6"):
        criterion(query, reference, exclude=make_lists([[0, 6]] * 6))
    with pytest.raises(TypeError, match="exclude must be a pair"):
        criterion(query, reference, exclude=torch.zeros(6, 6, dtype=torch.bool))


def test_temperature_is_learned_in_log_space_and_stays_within_its_limits():
    torch.manual_seed(0)
    criterion = InfoNCE(0.07)
    optimizer = torch.optim.SGD(criterion.parameters(), lr=10.0)
    x = torch.randn(16, 8)
    for _ in range(50):  # perfect pairs: colder is always better
        optimizer.zero_grad()
        criterion(x, x + 0.01 * torch.randn(16, 8)).backward()
        optimizer.step()
    criterion(x, x)
    assert criterion.temperature == pytest.approx(0.01)
    with torch.no_grad():
        criterion.log_temperature.fill_(math.log(1e-6))
    criterion(x, x.flip(0)).backward()  # wrong pairs: warmer is better, and there is a gradient to get there
    assert criterion.temperature == pytest.approx(0.01)
    assert criterion.log_temperature.grad < 0
    assert not InfoNCE(learnable=False).log_temperature.requires_grad


def gradients_on_a_rank(rank, sizes, cases):
    """Of a linear model and the temperature, averaged over ranks as DistributedDataParallel does."""
    torch.manual_seed(0)
    x, y = torch.randn(sum(sizes), 6), torch.randn(sum(sizes), 6)
    own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    found = []
    for options, rows in cases:
        torch.manual_seed(1)
        model, criterion = torch.nn.Linear(6, 4), InfoNCE(**options)
        loss = criterion(model(x[own]), model(y[own]), None if rows is None else make_lists(rows[own]))
        loss.backward()
        gradients = [p.grad for p in (*model.parameters(), *criterion.parameters())]
        if len(sizes) > 1:
            for value in (loss.detach(), *gradients):
                torch.distributed.all_reduce(value)
                value.div_(len(sizes))
        found.append([loss.detach(), *gradients])
    return found


@pytest.mark.parametrize("sizes", [[4, 4], [5, 4, 4]])
def test_ranks_together_have_the_loss_and_gradient_of_the_global_batch(sizes):
    n = sum(sizes)
    rows = [[(3 * i + 1) % n] * (i % 3 > 0) for i in range(n)]
    cases = list(itertools.product(({}, {"hard_fraction": 0.5}, {"symmetric": False}), (None, rows)))
    expected = gradients_on_a_rank(0, [n], cases)
    assert not torch.allclose(expected[0][0], expected[1][0])  # excluding makes a difference
    for found in on_ranks(len(sizes), gradients_on_a_rank, sizes, cases):
        for mine, truth in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
            assert torch.allclose(mine, truth, atol=1e-6)


def test_half_precision_embeddings_are_compared_in_single():
    torch.manual_seed(0)
    query, reference = torch.randn(6, 8).bfloat16(), torch.randn(6, 8).bfloat16()
    criterion = InfoNCE()
    expected = criterion(query.float(), reference.float())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(criterion(query, reference), expected)


def test_mistakes():
    for options, sentence in (
        ({"temperature": 0}, "temperature must be at least 0.01 and at most 1.0, got 0."),
        ({"label_smoothing": 1.0}, "label_smoothing must be"),
        ({"hard_fraction": 0.0}, "hard_fraction must be"),
    ):
        with pytest.raises(ValueError, match=sentence):
            InfoNCE(**options)
    with pytest.raises(ValueError, match="the same shape"):
        InfoNCE()(torch.randn(3, 4), torch.randn(2, 4))
