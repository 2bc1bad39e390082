"""Seeds tell noise from differences; with one seed, nothing on the page may look like a finding."""

import json
import re
import shutil

import pytest

from tests.report.pages import figures, report


def contenders(table):
    """The rows of what was trained."""
    return [row for row in table["rows"] if row["sampler"] in table["settings"]]


def single(study, spread=(0.5, 0.5008)):
    """The comparison as one seed would have left it, its results as near to each other as these."""
    folder = study / "compare"
    for run in folder.glob("*-seed1"):
        shutil.rmtree(run)
    table = json.loads((folder / "compare.json").read_text())
    table["seeds"] = 1
    table["rows"] = contenders(table)
    for row, recall in zip(table["rows"], spread, strict=True):
        row["runs"] = 1
        row.pop("gain_over_random", None)
        for name in row:
            if "@" in name:
                row[name] = {"mean": recall, "sd": None, "values": [recall]}
    (folder / "compare.json").write_text(json.dumps(table))
    for metrics in study.glob("*/*/metrics.jsonl"):
        epochs = [json.loads(line) for line in metrics.read_text().splitlines()]
        for epoch in epochs:
            epoch.update({name: spread[0] for name in epoch if "@" in name})
        metrics.write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))
    return folder


def shown(path, out):
    _, html, _ = report(path, out=out, gallery=False)
    return html, figures(html)


def percents(figure):
    """What is marked on an axis of shares."""
    return [float(tick) for tick in re.findall(r'class="tick">([\d.,-]+)%<', figure)]


def test_one_seed_has_no_winner_and_no_spread(study, tmp_path):
    html, _ = shown(single(study), tmp_path / "r.html")
    section = re.search('<section id="comparison">.*?</section>', html, re.DOTALL)[0]
    assert "<strong>" not in section
    assert "±" not in html
    assert "1 seed;" in section
    assert "1 seeds" not in html
    assert "the best" not in html


def first_tile(html):
    """A figure, what it is, and a remark."""
    return re.sub(r"<[^>]*>", "|", re.search(r'<dl class="tiles">\s*<div>.*?</div>', html)[0])


def test_one_seed_shows_the_range_and_crowns_nobody(study, tmp_path):
    html, _ = shown(single(study, (0.5, 0.61)), tmp_path / "r.html")
    tile = first_tile(html)
    assert "50.0% to 61.0%" in tile
    assert "2 samplers, too few seeds to rank them" in tile
    assert "lsh" not in tile


def test_a_single_run_has_neither(study, tmp_path):
    html, drawn = shown(study / "half", tmp_path / "r.html")
    assert "<strong>" not in html
    assert "±" not in html
    assert "The band is the range" not in html
    for figure in drawn.values():
        ticks = percents(figure)
        assert all(0 <= tick <= 100 for tick in ticks), ticks


@pytest.mark.parametrize("spread", [(0.5, 0.5008), (0.0, 0.0), (1.0, 1.0), (0.9996, 1.0), (0.0004, 0.0)])
def test_axes_do_not_magnify_noise_and_stay_within_all(study, tmp_path, spread):
    _, drawn = shown(single(study, spread), tmp_path / "r.html")
    for title in ("Recall@1 by sampler", "Recall@1 against memory", "Recall@1 by epoch"):
        ticks = percents(drawn[title])
        assert len(ticks) == len(set(ticks)) >= 2, (title, ticks)
        assert 2 - 1e-9 <= max(ticks) - min(ticks) <= 10, (title, ticks)
        assert min(ticks) >= 0
        assert max(ticks) <= 100


def several(study, random, lsh):
    """The comparison over some seeds with these results."""
    folder = study / "compare"
    table = json.loads((folder / "compare.json").read_text())
    table["rows"] = contenders(table)
    for row, values in zip(table["rows"], (random, lsh), strict=True):
        mean = sum(values) / len(values)
        sd = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
        row["recall@1"] = {"mean": mean, "sd": sd, "values": values}
    (folder / "compare.json").write_text(json.dumps(table))
    return folder


def set_off(html):
    """The samplers whose R@1 is bold."""
    table = re.search('<table class="samplers">.*?</table>', html, re.DOTALL)[0]
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", table, re.DOTALL)
    first_cells = [re.search(r"<span>([^<]*)</span></th>\s*<td>(.*?)</td>", row) for row in rows]
    return [found[1] for found in first_cells if "<strong>" in found[2]]


def test_bold_is_what_cannot_be_told_from_the_best(study, tmp_path):
    html, _ = shown(several(study, [0.50, 0.52], [0.70, 0.72]), tmp_path / "r.html")
    assert set_off(html) == ["lsh:64"]
    assert "standard errors" in html
    html, _ = shown(several(study, [0.50, 0.60], [0.56, 0.57]), tmp_path / "r.html")
    assert set_off(html) == []


def test_a_model_before_training_is_no_contender(study, tmp_path):
    folder = several(study, [0.50, 0.60], [0.56, 0.57])
    table = json.loads((folder / "compare.json").read_text())
    costs = dict.fromkeys(("seconds", "mining_seconds_per_epoch", "mining_share", "kept_bytes"))
    metrics = {name: {"mean": 0.99, "sd": 0.0, "values": [0.99, 0.99]} for name in table["rows"][0] if "@" in name}
    table["rows"].insert(0, {"sampler": "before training", "runs": 2, **metrics, **costs})
    (folder / "compare.json").write_text(json.dumps(table))
    html, drawn = shown(folder, tmp_path / "r.html")
    assert "2 samplers, 2 seeds" in html
    assert ">before training<" in drawn["Recall@1 by sampler"]
    assert ">before training<" not in drawn["Recall@1 against memory"]
    assert "56.5%" in first_tile(html)
    assert "highest mean: lsh:64" in first_tile(html)
    assert set_off(html) == []


def test_nothing_is_claimed_of_the_data_that_it_does_not_say(study, tmp_path):
    assert "never trained on" not in shown(study / "compare", tmp_path / "r.html")[0]
    assert "never trained on" not in shown(single(study), tmp_path / "r.html")[0]
