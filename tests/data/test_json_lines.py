import json
import pickle

import numpy as np
import pytest

from lookalike.data import indexed_lines
from lookalike.data.json_lines import JsonLines

pytestmark = pytest.mark.usefixtures("cache")

ROWS = [
    {"_id": "b", "title": "", "text": "one"},
    {"_id": "\u00fc 7", "title": "A title", "text": "and a text"},
    {"_id": "7", "title": None, "text": "  \u4e2d\u6587\u2028in one line "},
    {"text": "\r\n", "_id": "c67482ba-2019-04-18T13:32:05Z-00000-000"},
]
TEXTS = ["one", "A title and a text", "\u4e2d\u6587\u2028in one line", ""]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\n \n\t\n"])
@pytest.mark.parametrize("ends", [True, False])
def test_every_line_is_found_and_blank_ones_are_not(tmp_path, monkeypatch, chunk, end, ends):
    monkeypatch.setattr(indexed_lines, "CHUNK_BYTES", chunk)
    path = tmp_path / "corpus.jsonl"
    text = end.join(json.dumps(row, ensure_ascii=False) for row in ROWS) + (end if ends else "")
    path.write_bytes((end + text).encode())
    for lines in (JsonLines(path), JsonLines(path), pickle.loads(pickle.dumps(JsonLines(path)))):
        assert len(lines) == 4
        assert lines.read(np.arange(4)) == TEXTS
        assert lines.read(np.array([3, 0, 0])) == [TEXTS[3], TEXTS[0], TEXTS[0]]
        assert lines.positions([row["_id"] for row in reversed(ROWS)]).tolist() == [3, 2, 1, 0]
        found, known = lines.find(["absent", "b"])
        assert known.tolist() == [False, True]
        assert found[1] == 0
    with pytest.raises(ValueError, match=r"corpus.jsonl has no line with the id a, which another file names"):
        lines.positions(["b", "a"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "corpus.jsonl is empty"),
        ("\n \n", "corpus.jsonl is empty"),
        ('{"_id": "a", "text": "b"}\n\n{"_id": 3, "text": "b"}\n', r'line 3: expected \{"_id": "...", "text": "..."\}'),
        ('{"_id": "a"}\n', "line 1: expected"),
        ('{"_id": "a", "text": "b", "title": 3}\n', "line 1: expected .* with texts, and perhaps a title, got '{"),
        ("[1]\n", "line 1: expected"),
        ('{"_id": "a", "text"\n', "line 1: expected"),
        (
            '{"_id": "a", "text": "x"}\n{"_id": "b", "text": ""}\n{"_id": "a", "text": "y"}\n',
            "two lines with the _id 'a'",
        ),
    ],
)
def test_mistakes(tmp_path, text, sentence):
    path = tmp_path / "corpus.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=sentence):
        JsonLines(path)
