"""What augmentation does to pixels."""

import numpy as np
import pytest
import torch

from lookalike.data.augment import (
    HOLES,
    Augmentation,
    coarse_dropout,
    flipped,
    grid_dropout,
    jittered,
    rolled,
    rotated,
    turned,
    uniforms,
)

STILL = {"flip": 0.0, "degrees": 0.0, "jitter_share": 0.0, "dropout_share": 0.0}


def pictures(n=4, height=16, width=16, dtype=torch.uint8):
    images = torch.randint(1, 256, (n, 3, height, width), generator=torch.Generator().manual_seed(0))
    return images.to(torch.uint8) if dtype == torch.uint8 else images / 255


def compass(size):
    """The aerial image of a place with a landmark in each direction, and its panorama, north in the middle."""
    aerial = torch.zeros(1, 3, size, size, dtype=torch.uint8)
    middle = size // 2
    for value, (y, x) in enumerate([(0, middle), (middle, size - 1), (size - 1, middle), (middle, 0)], 1):
        aerial[0, :, y, x] = value  # north, east, south, west
    headings = torch.arange(4 * size) / size  # 0 to 4 quarters, from south by west, north and east to south
    panorama = torch.tensor([3, 4, 1, 2])[(headings + 0.5).long() % 4].expand(1, 3, 4, -1)
    return aerial, panorama.to(torch.uint8)


def seen_from_above(aerial):
    """Landmarks by direction, north, east, south, west."""
    size = aerial.shape[-1]
    strips = aerial[0, 0, 0], aerial[0, 0, :, -1], aerial[0, 0, -1], aerial[0, 0, :, 0]
    assert all(len(strip) == size for strip in strips)
    return [int(strip[size // 2 - 1 : size // 2 + 1].max()) for strip in strips]


def seen_around(panorama):
    width = panorama.shape[-1]
    return [int(panorama[0, 0, 0, (width // 2 + quarter * width // 4) % width]) for quarter in range(4)]


@pytest.mark.parametrize("seed", range(24))
def test_both_views_of_a_place_stay_those_of_one_place(seed):
    aerial, panorama = compass(17)
    assert seen_from_above(aerial) == seen_around(panorama) == [1, 2, 3, 4]
    geometry = Augmentation(cross_view=True, jitter_share=0, dropout_share=0)
    ids = torch.tensor([5])
    above, around = geometry(aerial, ids, seed, "reference"), geometry(panorama, ids, seed, "query")
    assert seen_from_above(above) == seen_around(around)


def test_all_eight_geometries_occur():
    aerial, _ = compass(17)
    geometry = Augmentation(cross_view=True, jitter_share=0, dropout_share=0)
    images = geometry(aerial.expand(400, -1, -1, -1), torch.arange(400), 3, "reference")
    seen = {tuple(seen_from_above(image[None])) for image in images}
    assert len(seen) == 8


def test_flips_turns_and_rolls_move_pixels_and_change_none():
    images = pictures()
    assert torch.equal(
        flipped(images, np.array([True, False, True, False]))[:, :, :, 0],
        torch.stack([images[0, :, :, -1], images[1, :, :, 0], images[2, :, :, -1], images[3, :, :, 0]]),
    )
    assert torch.equal(turned(images, np.array([0, 1, 2, 3]))[1], images[1].rot90(1, (1, 2)))
    assert torch.equal(rolled(images, np.array([0, 1, 2, 3]))[3], images[3].roll(-12, 2))
    with pytest.raises(ValueError, match="only square images"):
        turned(pictures(height=8), np.zeros(4, int))


def test_rotations_turn_counter_clockwise_about_the_centre():
    images = pictures()
    assert torch.equal(rotated(images, np.zeros(4)), images)
    assert torch.equal(rotated(images, np.full(4, 90.0)), images.rot90(1, (2, 3)))
    wide = torch.zeros(1, 3, 21, 41, dtype=torch.uint8)
    wide[:, :, 10, 10:31] = 200  # a bar of 21 pixels stands upright after a quarter, as long as before
    upright = rotated(wide, np.array([90.0]))
    assert upright[0, 0, :, 20].eq(200).sum() >= 20
    assert upright[0, 0, :, :15].sum() == 0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_colours_change_as_asked(dtype):
    grey = torch.full((4, 3, 6, 6), 100, dtype=torch.uint8) if dtype == torch.uint8 else torch.full((4, 3, 6, 6), 0.4)
    changes = np.zeros((4, 4))
    changes[0, 0], changes[1, 1], changes[2, 2], changes[3, 3] = 0.1, 0.15, 0.15, 0.15
    changed = jittered(grey, changes)
    assert changed.dtype == dtype
    assert torch.allclose(changed[0].float(), grey[0].float() * 1.1, atol=0.6 if dtype == torch.uint8 else 1e-4)
    for row in (1, 2, 3):  # grey has no contrast, saturation or hue
        assert torch.allclose(changed[row].float(), grey[row].float(), atol=1.0 if dtype == torch.uint8 else 2e-3)
    images = pictures(dtype=dtype)
    changed = jittered(images, changes)
    spread = [x.float().mean(1).std((1, 2)) for x in (images, changed)]
    assert spread[1][1] > 1.05 * spread[0][1]  # contrast
    colours = [x.float().std(1).mean((1, 2)) for x in (images, changed)]
    assert colours[1][2] > 1.05 * colours[0][2]  # saturation
    red = torch.zeros_like(images)
    red[:, 0] = 1 if dtype == torch.float32 else 255
    one_way, other_way = (jittered(red, sign * changes)[3].float().mean((1, 2)) for sign in (1, -1))
    assert one_way.argmin() == 1  # towards pink
    assert other_way.argmin() == 2  # towards yellow
    assert torch.equal(jittered(images, np.zeros((4, 4))), images)


def test_grid_dropout_makes_a_grid():
    images = pictures(3, 100, 200)
    holes = grid_dropout(images, np.array([True, True, False]), np.array([[0.0, 0.0], [0.5, 0.2], [0.0, 0.0]]))
    black = holes.amax(1) == 0  # [n, 100, 200]
    assert torch.equal(holes[2], images[2])
    assert black[:2].float().mean((1, 2)).tolist() == pytest.approx([0.16, 0.16])
    assert torch.equal(black[:2, 10:], black[:2, :-10])  # repeats
    assert not torch.equal(black[0], black[1])
    assert torch.equal(holes[0][:, ~black[0]], images[0][:, ~black[0]])


def test_coarse_dropout_makes_rectangles():
    images = pictures(50, 60, 90)
    drawn = uniforms(0, np.arange(50), 0, 1 + 4 * HOLES[1])
    which = np.arange(50) % 2 == 0
    black = coarse_dropout(images, which, drawn).amax(1) == 0
    share = black.float().mean((1, 2))
    assert (share[1::2] == 0).all()
    assert 0.07 < share[::2].min() < share[::2].max() < 0.5
    for alone in black[::2]:  # no hole is smaller than a tenth of the shorter side
        runs = torch.nn.functional.max_pool2d(-alone[None, None].float(), (6, 6), stride=1)
        assert (runs == -1).any()


@pytest.mark.parametrize("cross_view", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_everything_together(cross_view, dtype):
    images = pictures(64, 32, 32, dtype)
    augmentation = Augmentation(cross_view=cross_view)
    for tower in ("query", "reference"):
        changed = augmentation(images, torch.arange(64), 11, tower)
        assert changed.dtype == images.dtype
        assert changed.shape == images.shape
        assert torch.equal(changed, augmentation(images, torch.arange(64), 11, tower))
        assert (changed != images).flatten(1).any(1).float().mean() > 0.8
        assert torch.equal(Augmentation(cross_view=cross_view, **STILL)(images, torch.arange(64), 11, tower), images)
    with_holes = [(augmentation(images, torch.arange(64), s, "query").amax(1) == 0).flatten(1).any(1) for s in range(9)]
    assert 0.2 < torch.stack(with_holes).float().mean() < 0.4


def test_draws_are_uniform_and_independent():
    drawn = uniforms(7, np.arange(4000), 1, 5)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.01
    assert np.abs(np.corrcoef(drawn.T) - np.eye(5)).max() < 0.06
    assert np.abs(np.corrcoef(drawn[:, 0], uniforms(8, np.arange(4000), 1, 5)[:, 0])[0, 1]) < 0.06
    assert np.abs(np.corrcoef(drawn[1:, 0], drawn[:-1, 0])[0, 1]) < 0.06
