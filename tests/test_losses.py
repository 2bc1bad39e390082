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


def loops(query, reference, negatives, rows, *, symmetric=True, hard_fraction=None, smoothing=0.1, mask_above=None):
    """The loss in double precision, anchor by anchor and candidate by candidate; and masked and all negatives."""
    query, reference, explicit = (x.double() for x in (query, reference, negatives.flatten(0, 1)))
    counts = [0, 0]

    def one(i, anchor, candidates, excluded):
        similarity = [cosine_similarity(anchor, other, dim=0) for other in candidates]
        positive = similarity[i].item()
        limit = positive * mask_above if mask_above and positive > 0 else positive * (2 - (mask_above or 0))
        others = [j for j in range(len(candidates)) if j != i and j not in excluded]
        counts[1] += len(others)
        if mask_above is not None:
            assert all(abs(similarity[j].item() - limit) > 1e-6 for j in others)  # rounding decides nothing
            counts[0] += sum(similarity[j].item() > limit for j in others)
            others = [j for j in others if similarity[j].item() <= limit]
        if hard_fraction is not None:
            others = sorted(others, key=lambda j: -similarity[j].item())
            others = others[: math.ceil(hard_fraction * (len(candidates) - 1))]
        logits = torch.stack([similarity[j] for j in (i, *others)]) / 0.2
        terms = logits.logsumexp(0) - logits
        return (1 - smoothing) * terms[0] + smoothing * terms.mean()

    there = sum(one(i, query[i], [*reference, *explicit], rows[i]) for i in range(len(query))) / len(query)
    if not symmetric:
        return there, counts
    back = sum(one(i, reference[i], query, transposed(rows)[i]) for i in range(len(query))) / len(query)
    return (there + back) / 2, counts


OPTIONS = [
    {"symmetric": symmetric, "hard_fraction": hard, "smoothing": smoothing, "mask_above": above}
    for symmetric, hard, smoothing, above in (
        (True, None, 0.1, None),
        (False, 0.3, 0.0, None),
        (True, None, 0.1, 0.9),
        (True, 0.3, 0.1, 0.5),
        (False, None, 0.0, 1.0),
        (True, 1.0, 0.0, 0.01),
    )
]


def candidates(n, m):
    """Pairs, explicit negatives and lists to exclude, with near duplicates and with positives of either sign."""
    generator = torch.Generator().manual_seed(n)
    query = torch.randn(n, 6, generator=generator)
    reference = query + 1.5 * torch.randn(n, 6, generator=generator)
    reference[1], reference[-1] = reference[0] + 0.01, -query[-1] + 0.5 * reference[-1]
    negatives = torch.randn(n, m, 6, generator=generator)
    negatives[2, :1] = reference[0] - 0.01
    rows = [[(3 * i + 1) % n, n + (5 * i) % (n * m)] if m else [(3 * i + 1) % n] for i in range(n)]
    return query, reference, negatives, [row if i % 3 else [] for i, row in enumerate(rows)]


def infonce(smoothing, **options):
    return InfoNCE(0.2, label_smoothing=smoothing, **options)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("m", [0, 1, 3])
@pytest.mark.parametrize("excludes", [False, True])
def test_masks_and_explicit_negatives_equal_loops_in_double_precision(options, m, excludes):
    *inputs, rows = candidates(7, m)
    rows = rows if excludes else [[]] * 7
    inputs = [x.requires_grad_() for x in inputs]
    expected, counts = loops(*inputs, rows, **options)
    truths = torch.autograd.grad(expected, inputs, allow_unused=True)
    criterion = infonce(**options)
    loss = criterion(*inputs[:2], make_lists(rows) if excludes else None, inputs[2])
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for mine, truth in zip(torch.autograd.grad(loss, inputs, allow_unused=True), truths, strict=True):
        assert mine is truth is None if m == 0 and mine is None else torch.allclose(mine, truth, atol=1e-6)
    if options["mask_above"] is None:
        assert criterion.masked is None
    else:
        assert 0 < counts[0] < counts[1] or options["mask_above"] < 0.1
        assert criterion.counts.tolist() == counts
        assert criterion.masked == counts[0] / counts[1]


def test_what_is_masked_is_counted_until_it_is_reset_and_saved_with_the_state():
    query, reference, negatives, _ = candidates(7, 2)
    criterion = InfoNCE(mask_above=0.9)
    assert criterion.masked is None
    criterion(query, reference, negatives=negatives)
    once = criterion.counts.clone()
    criterion(query, reference, negatives=negatives)
    assert torch.equal(criterion.counts, 2 * once)
    other = InfoNCE(mask_above=0.9)
    other.load_state_dict(criterion.state_dict())
    assert other.masked == criterion.masked == once[0].item() / once[1].item()
    criterion.reset_masked()
    assert criterion.masked is None
    assert list(InfoNCE().state_dict()) == ["log_temperature"]
    criterion(query[:1], reference[:1])  # no negatives
    assert criterion.masked is None


@pytest.mark.parametrize(("sign", "masked"), [(1.0, 8), (-1.0, 4 * 11)])
def test_duplicates_of_the_positive_are_masked_whatever_its_similarity(sign, masked):
    query, reference = torch.eye(5)[:4], sign * torch.eye(5)[:4] + 0.1
    query[1], reference[1] = query[0], reference[0]
    negatives = torch.stack([torch.eye(5)[[4] * 4], reference], dim=1)  # something else, and a copy of the positive
    criterion = InfoNCE(mask_above=0.99, symmetric=False)
    criterion(query, reference, negatives=negatives)
    # Two pairs are the same: their queries have two references and two copies each. What is nearer is masked as well.
    assert criterion.counts.tolist() == [masked, 4 * 11]


def explicit_on_a_rank(rank, sizes, m, cases):
    query, reference, negatives, rows = candidates(sum(sizes), m)
    own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    found = []
    for options, excludes in cases:
        torch.manual_seed(1)
        model, criterion = torch.nn.Linear(6, 4), infonce(**options)
        exclude = make_lists(rows[own]) if excludes else None
        loss = criterion(model(query[own]), model(reference[own]), exclude, model(negatives[own]))
        loss.backward()
        counts = criterion.counts.clone()
        gradients = [p.grad for p in (*model.parameters(), *criterion.parameters())]
        if len(sizes) > 1:
            torch.distributed.all_reduce(counts)
            for value in (loss.detach(), *gradients):
                torch.distributed.all_reduce(value)
                value.div_(len(sizes))
        found.append([loss.detach(), *gradients, counts.float()])
    return found


@pytest.mark.parametrize("sizes", [[5, 4], [3, 3, 2]])
def test_ranks_share_their_explicit_negatives(sizes):
    cases = list(itertools.product(OPTIONS, (False, True)))
    expected = explicit_on_a_rank(0, [sum(sizes)], 2, cases)
    for found in on_ranks(len(sizes), explicit_on_a_rank, sizes, 2, cases):
        for mine, truth in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
            assert torch.allclose(mine, truth, atol=1e-6)


def different_numbers_on_a_rank(rank):
    with pytest.raises(ValueError, match=r"every rank must have the same number of negatives .* got \[1, 0\] by rank"):
        InfoNCE()(torch.randn(3, 4), torch.randn(3, 4), negatives=torch.randn(3, 1, 4) if rank == 0 else None)


def test_ranks_with_different_numbers_of_negatives_are_told():
    on_ranks(2, different_numbers_on_a_rank)


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
        ({"mask_above": 0.0}, "mask_above must be above 0 and at most 1, got 0.0."),
        ({"mask_above": 1.1}, "mask_above must be above 0 and at most 1, got 1.1."),
    ):
        with pytest.raises(ValueError, match=sentence):
            InfoNCE(**options)
    with pytest.raises(ValueError, match="the same shape"):
        InfoNCE()(torch.randn(3, 4), torch.randn(2, 4))
    for shape in ((3, 4), (2, 1, 4), (3, 1, 5)):
        with pytest.raises(ValueError, match=r"negatives must have the shape \[n, m, dim\]"):
            InfoNCE()(torch.randn(3, 4), torch.randn(3, 4), negatives=torch.randn(shape))
    with pytest.raises(ValueError, match="exclude ids must be between 0 and 8, got 9 to 9"):
        InfoNCE()(torch.randn(3, 4), torch.randn(3, 4), make_lists([[9], [], []]), torch.randn(3, 2, 4))
