"""What a sample says about strategies, where the answer is known."""

import json
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from lookalike.data.retrieval import RetrievalData
from lookalike.training.advice import advise
from lookalike.training.recipes import recipe
from lookalike.training.settings import Settings
from tests.toys import ToyPart, toy_data

SETTINGS = Settings(pairs_per_batch=16)


@dataclass(frozen=True)
class TwoTowers(ToyPart):
    """Pairs whose references are not their queries."""

    other: torch.Tensor | None = None
    noise: float = 0.0

    def plain(self, tower, ids):
        return (self.x if tower == "query" or self.other is None else self.other)[ids]

    def queries(self, ids, seed=0):
        noise = torch.randn(len(ids), self.x.shape[1], generator=torch.Generator().manual_seed(seed))
        return self.plain("query", ids) + self.noise * noise

    def references(self, ids, seed=0):
        return self.plain("reference", ids)


class AsItIs(nn.Module):
    """Embeddings are the samples themselves."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x


def rows(n, seed=0, dim=48):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def labelled(x, labels):
    return _data(TwoTowers(x, labels))


def paired(query, reference, noise=0.0):
    return _data(TwoTowers(query, None, len(query), other=reference, noise=noise))


def _data(train):
    return RetrievalData(name="made", description="made", checksum="0", train=train, test=toy_data().test)


def advice_on(data, settings=SETTINGS, **options):
    return advise(data, settings, model=AsItIs(), device="cpu", progress=False, **options)


def test_a_model_that_finds_positives_is_ready():
    centres = rows(300).repeat_interleave(4, dim=0)
    advice = advice_on(labelled(centres + 0.3 * rows(1200, 1), torch.arange(1200) // 4))
    assert advice.readiness.beats[1] > 0.9
    assert advice.warm_start
    assert advice.settings == replace(SETTINGS, sampler="lsh", bits=advice.bits)  # a warm start stays "auto"
    assert "The model is ready" in advice.text
    assert "(the threshold is 70%)" in advice.text
    assert "With a warm start the first epoch is mined too, at a hardness of 0.5." in advice.text
    assert advice.random.cosine < advice.mined.cosine < advice.hardest < advice.positive
    assert (advice.paired, advice.population, advice.sample, advice.dim) == (False, 1200, 1200, 48)


@pytest.mark.parametrize("data", [labelled(rows(1200), torch.arange(1200) // 4), paired(rows(1200), rows(1200, 1))])
def test_a_model_that_knows_nothing_is_not_ready_and_its_bits_decide_nothing(data):
    advice = advice_on(data)
    assert advice.readiness.beats[32] < 0.2
    assert not advice.warm_start
    assert advice.settings == replace(SETTINGS, sampler="lsh", warm_start="off")
    assert "not ready" in advice.text


def test_pairs_with_duplicates_are_advised_to_be_guarded():
    query = rows(1000)
    query[:30] = query[500:530]
    clean = advice_on(paired(rows(1000), rows(1000) + 0.1 * rows(1000, 1)))
    copied = advice_on(paired(query, query + 0.1 * rows(1000, 1)))
    assert (clean.false_negatives.identical, clean.settings.guard) == (0.0, None)
    assert copied.false_negatives.identical == pytest.approx(0.06)
    assert copied.settings.guard == 0.95
    assert "6.0% of the pairs have a duplicate" in copied.text


def test_a_model_that_cannot_read_the_data_is_noticed():
    same = torch.ones(200, 48)
    advice = advice_on(paired(same, same))
    assert (advice.false_negatives.identical, advice.warm_start) == (1.0, False)
    assert "100% of the pairs cannot be told from one with another label" in advice.text


def test_augmentation_decides_readiness_but_hides_no_duplicate():
    query = rows(1000)
    query[:30] = query[500:530]
    quiet, loud = (advice_on(paired(query, query + 0.1 * rows(1000, 1), noise)) for noise in (0.0, 5.0))
    assert (quiet.warm_start, loud.warm_start) == (True, False)
    assert quiet.false_negatives == loud.false_negatives
    assert loud.false_negatives.identical == pytest.approx(0.06)
    assert loud.settings.guard is None  # a model that is not ready cannot tell


def test_batches_that_hold_most_of_the_data_need_no_mining():
    x = rows(100)
    advice = advice_on(paired(x, x + 0.1 * rows(100, 1)), Settings(pairs_per_batch=64))
    assert (advice.settings.sampler, advice.warm_start) == ("random", False)
    assert "64% of all 100 pairs" in advice.text


def test_centring_is_shown_but_never_changed():
    x = rows(1000) + 6 * rows(1, 9)  # one direction is common to all
    data = paired(x, x + 0.1 * rows(1000, 1))
    for center in (0.0, 1.0):
        advice = advice_on(data, replace(SETTINGS, center=center))
        found = {each: plan.predicted(advice.bits)[0] for each, plan in advice.plans.items()}
        assert list(found) == [0.0, 0.5, 1.0]
        assert found[1.0] > found[0.0] + 0.05
        assert advice.settings.center == center
        assert advice.bits == advice.plans[center].bits
        remark = "Center stays 0: finding more neighbours before training has not made better models overall."
        assert (remark in advice.text) == (center == 0)


def test_codes_of_several_bits_are_predicted_beside_signs():
    x = rows(1000, 3) * torch.linspace(2, 0.1, 48)
    advice = advice_on(paired(x, x + 0.1 * rows(1000, 1)))
    signs, scalar = advice.plans[SETTINGS.center], advice.scalar
    assert (scalar.lengths, scalar.n, scalar.k) == (signs.lengths, signs.n, signs.k)
    assert scalar.predicted(advice.bits)[0] > signs.predicted(advice.bits)[0] + 0.05
    assert advice.settings.code == "signs"  # finding more has not made better models
    assert advice_on(paired(x, x), max_bits=24).scalar is None


def test_high_cosines_are_no_reason_to_mask():
    x = rows(1000) + 6 * rows(1, 9)
    advice = advice_on(paired(x, x + 0.1 * rows(1000, 1)))
    assert "All cosines are high" in advice.text
    assert "mask_above=0.95, or a filter at that fraction, would drop too many. The guard" in advice.text
    assert advice.settings.mask_above is None


def test_a_model_that_is_ready_gets_its_warm_start_back():
    x = rows(400)
    data = paired(x, x + 0.1 * rows(400, 1))
    chosen = {mode: advice_on(data, replace(SETTINGS, warm_start=mode)).settings for mode in ("auto", "on", "off")}
    assert {mode: settings.warm_start for mode, settings in chosen.items()} == {
        "auto": "auto",
        "on": "on",
        "off": "auto",
    }


def test_a_part_is_scaled_to_the_whole_and_depends_on_the_seed():
    centres = rows(2000).repeat_interleave(2, dim=0)
    data = labelled(centres + 0.4 * rows(4000, 1), torch.arange(4000) // 2)
    first, again, other = (
        advice_on(data, replace(SETTINGS, seed=seed), sample=800, max_bits=256) for seed in (0, 0, 1)
    )
    assert replace(first, seconds=0) == replace(again, seconds=0)
    assert first.mined != other.mined
    assert (first.sample, first.population) == (800, 4000)
    assert all(plan.n == 4000 for plan in first.plans.values())
    whole = advice_on(data, sample=4000, max_bits=256)
    assert first.readiness.beats[32] == pytest.approx(whole.readiness.beats[32], abs=0.05)


def test_an_untrained_network_does_not_know_characters():
    advice = advise("glyphs", sample=1024, max_bits=128, device="cpu", progress=False)
    assert not advice.readiness.is_ready
    assert advice.settings == replace(recipe("glyphs").settings, warm_start="off")
    assert 1000 < advice.sample <= 1024 < advice.population
    assert advice.random.cosine < advice.mined.cosine


def test_everything_is_written_as_json():
    x = rows(200)
    advice = advice_on(paired(x, x + 0.1 * rows(200, 1)))
    read = json.loads(json.dumps(advice.as_dict()))
    assert (read["readiness"]["is_ready"], read["readiness"]["enough"]) == (True, 0.7)
    assert read["settings"]["sampler"] == "lsh"
    assert [plan["center"] for plan in read["plans"]] == [0.0, 0.5, 1.0]
    assert read["scalar"]["code"] == "scalar"
    assert read["false_negatives"] == {"near": 0.0, "nearer": 0.0, "identical": 0.0}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sample": 10}, "sample"),
        ({"k": 0}, "k"),
        ({"max_bits": 100}, "bits"),
        ({"target": 2.0}, "target"),
    ],
)
def test_impossible_arguments_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        advice_on(toy_data(classes=100), **options)


def test_embeddings_that_are_not_finite_are_refused():
    x = rows(200)
    x[7] = torch.nan
    with pytest.raises(ValueError, match="not finite: choose another with model="):
        advice_on(paired(x, rows(200)))


def test_data_made_in_python_need_a_model():
    with pytest.raises(ValueError, match="say what to train with model="):
        advise(toy_data(), SETTINGS, device="cpu")
