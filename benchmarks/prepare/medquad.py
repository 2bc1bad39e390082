"""Convert MedQuAD's questions and answers to the layout of MS MARCO's passages."""

import hashlib
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.prepare.archives import unpacked
from lookalike.utils.components import connected_rows


class Answered(NamedTuple):
    """A question, its answer, and the disease that both are about."""

    question: str
    answer: str
    focus: str


def medquad(source: Path, output: Path) -> None:
    """Unpack the archive, or convert a checkout of the MedQuAD repository."""
    if source.is_file():
        unpacked(source, output)
        return
    partial = output.with_name(f"{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    write_passages(list(read_checkout(source)), partial)
    partial.rename(output)


def read_checkout(folder: Path) -> Iterator[Answered]:
    """Yield the questions and answers of all collections, ordered by collection number and file name.

    Raises:
        ValueError: The folder has no collections.
    """
    collections = [path for path in folder.glob("*_QA*") if path.is_dir() and re.match(r"\d+_", path.name)]
    if not collections:
        raise ValueError(f"{folder} is no checkout of MedQuAD: it has no folders such as 1_CancerGov_QA.")
    for collection in sorted(collections, key=lambda path: int(path.name.partition("_")[0])):
        for path in sorted(collection.glob("*.xml")):
            yield from read_document(path)


def read_document(path: Path) -> Iterator[Answered]:
    """Yield the pairs of a document that have an answer, with white space collapsed."""
    document = ET.parse(path).getroot()
    focus = _text(document, "Focus")
    for pair in document.iter("QAPair"):
        question, answer = _text(pair, "Question"), _text(pair, "Answer")
        if question and answer:
            yield Answered(question, answer, focus)


def _text(element: ET.Element, name: str) -> str:
    return " ".join((element.findtext(name) or "").split())


def write_passages(answered: list[Answered], folder: Path) -> None:
    """Write collection, queries and judgements: equal answers are one passage, equal questions one query.

    Diseases that share a question or a passage, directly or through others, are on the same side of the split.
    """
    passages = {text: number for number, text in enumerate(dict.fromkeys(each.answer for each in answered))}
    queries = {text: number for number, text in enumerate(dict.fromkeys(each.question for each in answered))}
    split = split_of_foci(answered)
    sides = {each.question: split[each.focus.lower()] for each in answered}
    _write(folder / "collection.tsv", (f"{number}\t{text}" for text, number in passages.items()))
    for side in ("train", "dev", "test"):
        chosen = {text: number for text, number in queries.items() if sides[text] == side}
        judged = dict.fromkeys((chosen[a.question], passages[a.answer]) for a in answered if a.question in chosen)
        _write(folder / f"queries.{side}.tsv", (f"{number}\t{text}" for text, number in chosen.items()))
        _write(folder / f"qrels.{side}.tsv", (f"{query}\t0\t{passage}\t1" for query, passage in sorted(judged)))


def split_of_foci(answered: list[Answered]) -> dict[str, str]:
    """Assign diseases, in lower case, to train, dev and test, 80 to 10 to 10, by their names alone.

    Among diseases that share questions or passages, the first name in alphabetical order decides for all of them.
    """
    numbers: dict[tuple[str, str], int] = {}
    foci = [each.focus.lower() for each in answered]
    members = [
        [
            numbers.setdefault(member, len(numbers))
            for member in (("focus", focus), ("question", each.question), ("answer", each.answer))
        ]
        for focus, each in zip(foci, answered, strict=True)
    ]
    groups = connected_rows(np.array(members, np.int64)).tolist()
    leaders: dict[int, str] = {}
    for group, focus in zip(groups, foci, strict=True):
        leaders[group] = min(focus, leaders.get(group, focus))
    return {focus: side_of(leaders[group]) for group, focus in zip(groups, foci, strict=True)}


def side_of(focus: str) -> str:
    """Choose the side of a disease by the SHA-1 of its name."""
    place = int(hashlib.sha1(focus.encode(), usedforsecurity=False).hexdigest(), 16) % 100
    return "train" if place < 80 else "dev" if place < 90 else "test"


def _write(path: Path, lines: Iterator[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
