"""Pairs of random words that the tiny model knows."""

import json
import random
from collections import Counter
from types import SimpleNamespace

from benchmarks.kill_mine import WORDS
from lookalike.utils.lists import make_lists


def sentence(rng, length):
    return " ".join(rng.choice(WORDS) for _ in range(length))


def make_columns():
    """Columns of pairs, several positives for some queries, and texts that repeat: 67 rows, 62 queries, 64 answers."""
    rng = random.Random(0)
    rows = [(sentence(rng, 4), sentence(rng, 9)) for _ in range(60)]
    rows += [(rows[i][0], sentence(rng, 9)) for i in (0, 3, 3, 7)]  # further positives
    rows += [(sentence(rng, 4), rows[i][1]) for i in (1, 5)]  # the same answer to another question
    rows.append(rows[11])  # the same pair again
    return {"query": [q for q, _ in rows], "answer": [a for _, a in rows]}


def write_jsonl(path, columns):
    rows = zip(columns["query"], columns["answer"], strict=True)
    path.write_text("".join(json.dumps({"query": q, "answer": a}) + "\n" for q, a in rows))
    return path


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def make_pairs(anchors, positives, corpus=None):
    """Collect pairs in memory, as files of pairs should hold them: each text once, those of the corpus first."""
    texts = list(dict.fromkeys([*(corpus or ()), *positives]))
    number = {text: i for i, text in enumerate(texts)}
    answers = {}
    for anchor, positive in zip(anchors, positives, strict=True):
        answers.setdefault(anchor, {})[number[positive]] = None
    lists = make_lists([list(ids) for ids in answers.values()])
    most = max(Counter(anchors).values())
    return SimpleNamespace(queries=list(answers), corpus=texts, positives=lists, num_rows=len(anchors), most_rows=most)
