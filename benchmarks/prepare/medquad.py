"""MedQuAD's questions and answers in the layout of MS MARCO's passages."""

import hashlib
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.prepare.archives import unpacked


class Answered(NamedTuple):
    """A question with an answer and the disease that both are about."""

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
    """Yield what the collections ask and answer, in the order of their numbers and of their files' names.

    Raises:
        ValueError: There are no collections in the folder.
    """
    collections = [path for path in folder.glob("*_QA*") if path.is_dir() and re.match(r"\d+_", path.name)]
    if not collections:
        raise ValueError(f"{folder} is no checkout of MedQuAD: it has no folders such as 1_CancerGov_QA.")
    for collection in sorted(collections, key=lambda path: int(path.name.partition("_")[0])):
        for path in sorted(collection.glob("*.xml")):
            yield from read_document(path)


def read_document(path: Path) -> Iterator[Answered]:
    """Yield the pairs of a document that have an answer; white space is collapsed."""
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

    Diseases that share a question or a passage, also through others, are on one side of the split.
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

    The first name in alphabetical order of those that share questions or passages decides for all of them.
    """
    leader: dict[str, str] = {}

    def find(focus: str) -> str:
        while leader.setdefault(focus, focus) != focus:
            focus = leader[focus]
        return focus

    first: dict[str, str] = {}  # of a question or an answer, the disease it was first met with
    for each in answered:
        for text in (f"Q {each.question}", f"A {each.answer}"):
            one, other = find(first.setdefault(text, each.focus.lower())), find(each.focus.lower())
            leader[max(one, other)] = min(one, other)
    return {focus: side_of(find(focus)) for focus in leader}


def side_of(focus: str) -> str:
    """Decide by the SHA-1 of a name."""
    place = int(hashlib.sha1(focus.encode(), usedforsecurity=False).hexdigest(), 16) % 100
    return "train" if place < 80 else "dev" if place < 90 else "test"


def _write(path: Path, lines: Iterator[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
