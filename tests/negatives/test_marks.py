"""Marks are on disk when they are acknowledged, whatever happens then."""

import json
import re

import pytest

from lookalike.negatives.same import Marks, read_same
from lookalike.utils.files import DiskFullError
from lookalike.utils.locks import FolderInUseError
from tests.processes import Child, wait_until

HEADER = '{"lookalike": "same", "samples": 50, "data": null, "checksum": null}\n'
FIRST = '{"first": 3, "second": 4, "same": true}\n'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "marks.jsonl"


def test_the_file_is_what_people_read(path):
    with Marks(path, samples=50, data="glyphs", checksum="0badcafe") as marks:
        marks.mark(12, 40)
        marks.mark(4, 3)
        marks.unmark(40, 12)
        assert marks.pairs.tolist() == [[3, 4]]
        assert ((3, 4) in marks, (4, 3) in marks, (12, 40) in marks, len(marks)) == (True, True, False, 1)
    assert path.read_text() == (
        '{"lookalike": "same", "samples": 50, "data": "glyphs", "checksum": "0badcafe"}\n'
        '{"first": 12, "second": 40, "same": true}\n'
        '{"first": 4, "second": 3, "same": true}\n'
        '{"first": 40, "second": 12, "same": false}\n'
    )
    assert list(path.parent.iterdir()) == [path]  # nothing is left of the lock


def test_a_mark_is_on_disk_at_once_and_the_last_decision_counts(path):
    with Marks(path, samples=50) as marks:
        for decide, expected in ((marks.mark, [[3, 4]]), (marks.unmark, []), (marks.mark, [[3, 4]])):
            decide(3, 4)
            assert read_same(path, 50).tolist() == expected
    with Marks(path, samples=50) as marks:
        assert marks.pairs.tolist() == [[3, 4]]


@pytest.mark.parametrize("name", ["marks.csv", "marks.npy", "marks"])
def test_a_file_that_nothing_could_read_as_marks_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"must be a \.jsonl file"):
        Marks(tmp_path / name, samples=50)
    assert list(tmp_path.iterdir()) == []


def test_the_order_of_marking_survives_a_restart(path):
    with Marks(path, samples=50) as marks:
        for pair in ((40, 12), (3, 4), (1, 2), (12, 40)):  # the first one again
            marks.mark(*pair)
        marks.unmark(2, 1)
        assert marks.in_order == [(3, 4), (12, 40)]
    with Marks(path, samples=50) as marks:
        assert marks.in_order == [(3, 4), (12, 40)]
        assert marks.pairs.tolist() == [[3, 4], [12, 40]]


def test_a_query_and_a_reference_keep_their_order(path):
    with Marks(path, samples=5, references=9) as marks:
        marks.mark(4, 8)
        marks.mark(3, 3)
    assert read_same(path, 5, references=9).tolist() == [[3, 3], [4, 8]]
    with pytest.raises(ValueError, match="they are of 5 samples and 9 references, here there are 5 samples; choose"):
        read_same(path, 5)


def test_a_line_cut_off_at_any_byte_is_ignored_and_repaired(path):
    whole = HEADER + FIRST + '{"first": 5, "second": 6, "same": true}\n'
    for length in range(len(HEADER + FIRST), len(whole)):
        path.write_text(whole[:length])
        before = [[3, 4]] if length < len(whole) - 1 else [[3, 4], [5, 6]]  # only the end of the line is missing
        assert read_same(path, 50).tolist() == before
        with Marks(path, samples=50) as marks:
            marks.mark(7, 8)
        assert read_same(path, 50).tolist() == [*before, [7, 8]]
        assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1: expected {"),
        (HEADER[:-9], "line 1: expected {"),
        (FIRST, "line 1: expected {"),
        (HEADER + FIRST[:-9] + "\n", "line 2: expected a line such as {"),
        (HEADER + "\n" + FIRST.replace("3", "3.0"), "line 3: expected a line such as {"),
        (HEADER + FIRST.replace("true", "1") + FIRST, "line 2: expected a line such as {"),
        (HEADER + FIRST.replace("3", "50"), "line 2: first must be an id between 0 and 49, got 50."),
        (HEADER + FIRST.replace("3", "4"), "line 2: first and second are both 4, but two different samples"),
        (HEADER + "\x00" * 9 + "\n", "line 2: expected a line such as {"),
    ],
)
def test_other_damage_is_refused(path, text, sentence):
    path.write_text(text)
    for read in (lambda: read_same(path, 50), lambda: Marks(path, samples=50)):
        with pytest.raises(ValueError, match=re.escape(f"{path}, {sentence}")):
            read()
    assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]  # the lock was given back


def test_marks_of_other_data_are_refused(path):
    Marks(path, samples=50, checksum="aaaa").close()
    sentence = "holds marks of other data: they are of 50 samples (checksum aaaa), here there are 51 samples; choose"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Marks(path, samples=51)
    with pytest.raises(ValueError, match=r"here there are 50 samples \(checksum bbbb\)"):
        read_same(path, 50, "bbbb")
    assert len(read_same(path, 50)) == 0  # whoever has no checksum goes by the number


def test_pairs_that_cannot_be(path):
    with Marks(path, samples=50) as marks:
        for pair, sentence in (((3, 3), "two different samples, got 3 twice"), ((3, 50), "between 0 and 49, got 50")):
            with pytest.raises(ValueError, match=sentence):
                marks.mark(*pair)
        with pytest.raises(TypeError, match="first must be an integer, got str"):
            marks.mark("3", 4)
    with pytest.raises(ValueError, match="is closed: open it again"):
        marks.mark(3, 4)
    assert path.read_text() == HEADER


def test_one_process_marks_at_a_time(path):
    with Marks(path, samples=50), pytest.raises(FolderInUseError, match=f"{re.escape(str(path))} is in use by process"):
        Marks(path, samples=50)
    Marks(path, samples=50).close()


@pytest.mark.parametrize("touch", ["remove", "move", "replace", "edit"])
def test_nothing_is_marked_in_a_file_that_another_program_has_touched(path, touch):
    with Marks(path, samples=50) as marks:
        marks.mark(3, 4)
        text = path.read_text()
        if touch == "remove":
            path.unlink()
        elif touch == "move":
            path.rename(path.with_name("moved.jsonl"))
        elif touch == "replace":  # as editors save
            path.with_name("new").write_text(text)
            path.with_name("new").replace(path)
        else:
            path.write_text(HEADER)
        with pytest.raises(ValueError, match="was moved, removed or changed by another program"):
            marks.mark(5, 6)
        assert marks.pairs.tolist() == [[3, 4]]
    with Marks(path, samples=50) as marks:
        marks.mark(7, 8)
    assert [7, 8] in read_same(path, 50).tolist()


def test_a_full_disk_leaves_the_file_as_it_was(path, monkeypatch):
    with Marks(path, samples=50) as marks:
        marks.mark(3, 4)

        def full(_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", full)
            with pytest.raises(DiskFullError, match="make room and try again"):
                marks.mark(5, 6)
        assert marks.pairs.tolist() == [[3, 4]]
        marks.mark(7, 8)
    assert read_same(path, 50).tolist() == [[3, 4], [7, 8]]


def mark_forever(path):
    with Marks(path, samples=10**9) as marks:
        i = len(marks)
        while True:
            marks.mark(i, i + 1)
            print(i, flush=True)
            i += 1


def test_a_killed_process_loses_no_mark_that_it_acknowledged(path):
    for _ in range(3):
        with Child(mark_forever, path) as child:
            wait_until(lambda child=child: child.printed.count("\n") >= 20, child)
            child.kill()
            child.wait()
            acknowledged = child.printed.splitlines(keepends=True)
        last = int([line for line in acknowledged if line.endswith("\n")][-1])
        found = read_same(path, 10**9).tolist()
        assert found == [[i, i + 1] for i in range(len(found))]
        assert len(found) >= last + 1
