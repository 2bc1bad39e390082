"""One file, a list, a pattern or a folder: the files that are meant, in their natural order."""

import pytest

from lookalike.mining.shard_files import files_identity, find_files

NAMES = ["part-1.csv", "part-2.csv", "part-10.csv"]


@pytest.fixture
def folder(tmp_path):
    for name in reversed(NAMES):
        (tmp_path / name).write_text(name)
    (tmp_path / "README.md").write_text("not a shard")
    return tmp_path


def test_files_are_found_in_their_natural_order(folder):
    files = [folder / name for name in NAMES]
    for given in (folder, str(folder), folder / "*.csv", str(folder / "part-*"), str(folder / "**" / "*.csv"), files):
        assert find_files(given, [".csv"], "pairs") == files
    assert find_files(files[::-1], [".csv"], "pairs") == files[::-1]  # a list has an order of its own
    assert find_files([folder / "part-?.csv", files[2]], [".csv"], "pairs") == files


def test_a_bracket_in_the_name_of_a_file_is_no_pattern(folder):
    path = folder / "part[1].csv"
    path.write_text("")
    assert find_files(path, [".csv"], "pairs") == [path]


def test_files_that_are_not_there(folder):
    with pytest.raises(FileNotFoundError, match=r"no\*: there are no files of pairs whose names fit"):
        find_files(folder / "no*", [".csv"], "pairs")
    with pytest.raises(FileNotFoundError, match=r"no\.csv: there is no such file of pairs"):
        find_files([folder / "no.csv"], [".csv"], "pairs")
    with pytest.raises(ValueError, match="an empty list names no files of pairs"):
        find_files([], [".csv"], "pairs")
    with pytest.raises(ValueError, match=r"holds no files of pairs \(.txt\); name those further down with a pattern"):
        find_files(folder, [".txt"], "pairs")
    with pytest.raises(ValueError, match=r"holds files of several kinds \(.csv, .md\); name one of them"):
        find_files(folder, [".csv", ".md"], "pairs")
    with pytest.raises(ValueError, match=r"README\.md must be one of .csv to be read as pairs"):
        find_files(folder / "*", [".csv"], "pairs")


def test_the_identity_changes_with_the_files(folder):
    files = find_files(folder, [".csv"], "pairs")
    before = files_identity(files)
    assert before == files_identity(files)
    assert (before["files"], before["sizes"]) == (NAMES, [10, 10, 11])
    files[0].write_text("longer than it was")
    assert files_identity(files) != before
    assert files_identity(files[1:]) != before
