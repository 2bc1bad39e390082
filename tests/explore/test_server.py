"""The server: who is let in, what odd requests get, and what is on disk after a mark."""

import json
import re
import shlex

import numpy as np
import pytest

from lookalike.cli import main
from lookalike.explore.server import Server
from lookalike.explore.session import Session
from lookalike.negatives.same import read_same
from tests.explore.serving import ODD, explored, serving, write_embeddings


@pytest.mark.parametrize("prefix", ["/", "/wrong/", "//", "/%00/", "/%C3%A9/"])
@pytest.mark.parametrize("path", ["", "api/about", "page.js", "image/sample/0"])
def test_nothing_is_answered_without_the_token(client, prefix, path):
    status, headers, content = client.ask(path, prefix=prefix)
    assert status == 403
    assert b"sample" not in content
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1", ""])
def test_other_names_for_this_machine_are_refused(client, host):
    assert client.ask("api/about", headers={"Host": host})[0] == 403


def test_the_page_loads_nothing_from_elsewhere(client):
    status, headers, page = client.ask("")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert not re.search(rb"(src|href)=\"(https?:)?//", page)
    for name in re.findall(rb"(?:src|href)=\"([\w.]+)\"", page):
        assert client.ask(name.decode())[0] == 200


@pytest.mark.parametrize(
    "path", ["../pyproject.toml", "page/../../server.py", "%2e%2e/server.py", "/etc/passwd", "image/../0", "index.html"]
)
def test_no_other_file_is_served(client, path):
    assert client.ask(path)[0] == 404


@pytest.mark.parametrize("text", ["-1", "60", "9" * 30, "1.5", "٣", "a", "%00", "1e3", " 1"])
def test_odd_ids_are_no_samples(client, text):
    status, _, content = client.ask("api/sample/" + text.replace(" ", "%20").replace("٣", "%D9%A3"))
    assert status == 404
    assert "ids go from 0 to 59" in json.loads(content)["error"]


def test_numbers_of_the_address_are_limited_or_refused(client):
    assert len(client.json(f"api/sample/0?k={'9' * 40}")["negatives"]) == 57
    assert len(client.json("api/sample/0?k=0")["negatives"]) == 1
    assert client.json("api/suspects?start=999999999999")["pairs"] == []
    assert client.ask("api/sample/0?k=many")[0] == 400
    near = client.json("api/sample/0?min=5&max=25")
    assert all(5 <= each["distance"] <= 25 for each in near["negatives"])
    assert near["total"] < client.json("api/sample/0")["total"]


def test_search_finds_ids_labels_and_texts_in_any_script(client):
    def found(query):
        return [each["id"] for each in client.json(f"api/search?q={query}")["samples"]]

    assert found("") == found("%20") == []
    assert found("%237")[0] == 7
    assert found("label-001") == found("label:LABEL-001") == [3, 4, 5]
    assert found("%C3%BCBERGR%C3%96SSEN") == [2]  # case folding turns ß into ss
    assert found("%CF%83%CE%AF%CF%83%CF%85%CF%86%CE%BF%CF%82") == [2]  # final sigma
    assert found("%E3%83%86%E3%82%AD%E3%82%B9%E3%83%88") == [3]
    assert found("%3C/script%3E") == [0, 1]
    assert found("number%20%20%2017%20of") == [17]
    assert len(found("text")) == 40
    assert found("x" * 5000) == []
    assert [each["views"]["sample"] for each in client.json("api/search?q=script")["samples"]] == ODD[:2]


def test_likely_false_negatives_come_first_and_marks_count_at_once(tmp_path):
    folder = write_embeddings(tmp_path)
    with serving(explored(folder, labels="labels.txt", texts="texts.txt")) as client:
        first = client.json("api/suspects")["pairs"][:2]
        assert {tuple(sorted((each["first"]["id"], each["second"]["id"]))) for each in first} == {(0, 3), (1, 4)}
        assert 3 in [each["id"] for each in client.json("api/sample/0")["negatives"]]
        assert client.mark(first=0, second=3, same=True) == (200, {"marks": 1})
        path = folder / "x.npy.same.jsonl"
        assert read_same(path, 60).tolist() == [[0, 3]]
        after = client.json("api/sample/0")
        assert not {3, 4, 5} & {each["id"] for each in after["negatives"]}  # the labels are one
        assert {3, 4, 5} <= {each["id"] for each in after["positives"]}
        assert [each["marked"] for each in after["positives"] if each["id"] == 3] == [True]
        assert all(
            {0, 3} != {each["first"]["id"], each["second"]["id"]} for each in client.json("api/suspects")["pairs"]
        )
        assert client.json("api/marks")["pairs"][0]["second"]["id"] == 3
        with pytest.raises(ValueError, match="in use"):
            Session(explored(folder, labels="labels.txt"))
        assert client.mark(first=3, second=0, same=False) == (200, {"marks": 0})
        assert 3 in [each["id"] for each in client.json("api/sample/0")["negatives"]]
        client.mark(first=7, second=1, same=True)
    with serving(explored(folder, labels="labels.txt", texts="texts.txt")) as client:
        assert client.json("api/about")["marks"] == 1
        assert client.json("api/about")["use"].endswith(f"--same {path}")


def test_the_command_that_uses_marks_can_be_typed_as_it_is(tmp_path, capsys):
    folder = tmp_path / "my data"
    folder.mkdir()
    with serving(explored(write_embeddings(folder), labels="labels.txt")) as client:
        client.mark(first=0, second=3, same=True)
        program, *command = shlex.split(client.json("api/about")["use"])
    assert program == "lookalike"
    assert "--output" in command
    command[command.index("--output") + 1] = str(tmp_path / "negatives.npy")
    main(command)
    found = np.load(tmp_path / "negatives.npy")
    assert not {3, 4, 5} & set(found[0].tolist())
    assert "negatives.npy" in capsys.readouterr().out


def test_marks_are_listed_page_by_page(tmp_path):
    with serving(explored(write_embeddings(tmp_path), labels="labels.txt")) as client:
        for second in range(1, 6):
            client.mark(first=0, second=second, same=True)
        assert [each["second"]["id"] for each in client.json("api/marks?start=1&k=2")["pairs"]] == [4, 3]
        assert client.json("api/marks?start=5") == {"total": 5, "pairs": []}


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"first": 0, "second": 1, "same": true}', "text/plain", 400),  # what a form of another site could send
        (b'{"first": 0, "second": 1}', "application/json", 400),
        (b'{"first": true, "second": 1, "same": true}', "application/json", 400),
        (b'{"first": "0", "second": 1, "same": true}', "application/json", 400),
        (b"[]", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b" " * 5000, "application/json", 413),
        (b'{"first": 0, "second": 60, "same": true}', "application/json", 404),
        (b'{"first": 0, "second": -1, "same": true}', "application/json", 404),
        (b'{"first": 5, "second": 5, "same": true}', "application/json", 409),
    ],
)
def test_odd_marks_are_refused(client, body, kind, status):
    assert client.ask("api/mark", body=body, headers={"content-type": kind})[0] == status
    assert client.json("api/about")["marks"] == 0


def test_marks_are_only_made_by_post(client):
    assert client.ask("api/mark")[0] == 405


@pytest.mark.parametrize(
    ("n", "per_label", "labels"), [(2, 1, None), (2, 2, "labels.txt"), (9, 9, "labels.txt"), (9, 3, None)]
)
def test_small_sets(tmp_path, n, per_label, labels):
    folder = write_embeddings(tmp_path, n, per_label)
    with serving(explored(folder, **({} if labels is None else {"labels": labels}))) as client:
        answer = client.json("api/sample/0")
        assert len(answer["negatives"]) == (0 if labels else n - 1)
        assert len(answer["positives"]) == (n - 1 if labels else 0)
        assert client.json("api/suspects")["problem"] == ""
        assert client.ask("image/sample/0")[0] == 404
        assert client.json("api/search?q=0")["samples"][0]["label"] == ("label-000" if labels else None)


def test_a_taken_port_is_reported(client):
    with pytest.raises(ValueError, match="cannot be used"):
        Server(client.session, client.server.port)
