import pytest

from lookalike.data import data_sets
from lookalike.training.encoders import check_encoder
from lookalike.training.recipes import recipe

IMAGES, TEXTS = "timm:convnext_base.fb_in22k", "transformers:distilroberta-base"
PAPER = {  # encoder, epochs, learning rate
    "cvusa": (IMAGES, 40, 1e-3),
    "cvact": (IMAGES, 40, 1e-3),
    "cvact-test": (IMAGES, 40, 1e-3),
    "vigor-same": (IMAGES, 40, 1e-3),
    "vigor-cross": (IMAGES, 40, 1e-3),
    "sop": (IMAGES, 10, 1e-3),
    "inshop": (IMAGES, 10, 1e-3),
    "msmarco": (TEXTS, 10, 1e-4),
}


@pytest.mark.parametrize("name", data_sets())
def test_every_data_set_has_a_recipe(name):
    found = recipe(name)
    check_encoder(**found.model)
    data_sets()[name].check_options(found.data)


def test_a_file_of_glyphs_has_a_recipe_by_its_path():
    assert recipe("some/fonts.npz") == recipe("FILE.npz")
    assert recipe("FILE.npz").settings.pairs_per_batch == 64
    with pytest.raises(ValueError, match=r"no data set 'vigor'; there are .*; did you mean 'vigor-"):
        recipe("vigor")


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_settings(name):
    found = recipe(name)
    settings = found.settings
    assert (found.model["encoder"], settings.epochs, settings.learning_rate) == PAPER[name]
    assert (settings.pairs_per_batch, settings.label_smoothing, settings.weight_decay) == (128, 0.1, 0.01)


def test_options_of_another_encoder_are_dropped():
    assert recipe("glyphs").changed({}, {"encoder": "timm:x"}).model == {"encoder": "timm:x"}
    assert recipe("glyphs").changed({}, {"width": 8}).model == {"encoder": "convnet", "width": 8, "dim": 256}
