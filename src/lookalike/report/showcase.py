"""The gallery as markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.report.groups import strategy_of
from lookalike.report.markup import Markup, join, tag

if TYPE_CHECKING:
    from lookalike.report.gallery import Example, Gallery, Shown


def showcase(found: Gallery | str) -> Markup:
    """A card per anchor; or, in its place, why there is none."""
    if isinstance(found, str):
        return tag("p", found, class_="absent")
    config = found.run.config
    own = sum(shown.shared for example in found.examples for shown in example.by_bits)
    total = sum(len(example.by_bits) for example in found.examples)
    lead = (
        f"{len(found.examples)} anchors drawn at random from the training part, the most confusable first, as the "
        f"model of {strategy_of(config)}, seed {config.get('seed', '?')}, sees them: the positive farthest from the "
        f"anchor, the hard negatives that {found.bits} bits choose, and the exact ones, each with its cosine to the "
        f"anchor. A bar marks what both choose, {own} of {total}."
    )
    cards = tag("div", *map(_card, found.examples), class_="gallery text-gallery" if found.is_text else "gallery")
    return join([tag("p", lead, class_="lead"), cards])


def _card(example: Example) -> Markup:
    pair = tag("ol", _item(example.anchor, "anchor"), _item(example.positive, "positive"))
    return tag(
        "article",
        tag("div", tag("h4", "anchor, positive"), pair, class_="ends"),
        _row("in bits", example.by_bits),
        _row("exact", example.exact),
    )


def _row(name: str, members: list[Shown]) -> Markup:
    items = [_item(shown, "shared" if shown.shared else "own") for shown in members]
    return tag("div", tag("h4", name), tag("ol", *items))


def _item(shown: Shown, kind: str) -> Markup:
    cosine = Markup() if shown.cosine is None else tag("span", f"{shown.cosine:.2f}", class_="cosine")
    said = f"sample {shown.id}" + ("" if shown.cosine is None else f", cosine {shown.cosine:.3f}")
    return tag("li", tag("div", shown.content, class_="frame"), cosine, class_=kind, title=said)
