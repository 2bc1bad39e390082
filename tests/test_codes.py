import os
import signal
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from lookalike import CodeTable, ScalarHasher, codes, scalar_topk
from tests.processes import resident_bytes, run_function


def random_codes(n, bits, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, bits // 8), dtype=torch.uint8, generator=generator)


def test_write_and_seen():
    table, codes = CodeTable(100, 24), random_codes(30, 24)
    ids = torch.randperm(100)[:30]
    table.write(ids, codes)
    assert torch.equal(table.codes[ids], codes)
    assert table.seen.nonzero().flatten().tolist() == sorted(ids.tolist())
    assert table.num_seen == 30
    table.write(ids[:5], codes[5:10])  # newer codes replace older ones
    assert torch.equal(table.codes[ids[:5]], codes[5:10])
    assert table.num_seen == 30
    assert repr(table) == "CodeTable(n=100, bits=24, seen=30)"


def test_write_takes_any_layout_and_equal_duplicates():
    table, codes = CodeTable(10, 16), random_codes(3, 32)
    table.write([4, 4, 1], torch.stack([codes[0], codes[0], codes[1]])[:, ::2])
    assert torch.equal(table.codes[[4, 1]], codes[:2, ::2])
    table.write([], torch.zeros(0, 2, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("ids", "codes", "error", "sentence"),
    [
        ([0, 10], random_codes(2, 16), ValueError, "ids must be between 0 and 9, got 10"),
        ([-1, 3], random_codes(2, 16), ValueError, "ids must be between 0 and 9, got -1"),
        ([7, 2, 7], random_codes(3, 16), ValueError, "id 7 occurs twice in one write with different codes"),
        ([1.0, 2.0], random_codes(2, 16), TypeError, "ids must be integers"),
        ([1, 2], random_codes(2, 24), ValueError, r"codes must have the shape \[2, 2\] \(one code of 16 bits per id\)"),
        ([1, 2], random_codes(3, 16), ValueError, r"got \[3, 2\]"),
        ([1, 2], random_codes(2, 16).int(), TypeError, "codes must be packed codes of dtype uint8, got torch.int32"),
    ],
)
def test_bad_writes_change_nothing(ids, codes, error, sentence):
    table = CodeTable(10, 16)
    with pytest.raises(error, match=sentence):
        table.write(ids, codes)
    assert table.num_seen == 0
    assert not table.codes.any()


def test_bad_sizes():
    with pytest.raises(ValueError, match="bits must be a multiple of 8"):
        CodeTable(5, 9)
    with pytest.raises(ValueError, match="n must be at least 1"):
        CodeTable(0, 8)


def test_truncate_is_a_prefix_and_a_copy():
    table = CodeTable(9, 64)
    table.write(torch.arange(5), random_codes(5, 64))
    short = table.truncate(16)
    assert torch.equal(short.codes, table.codes[:, :2])
    assert torch.equal(short.seen, table.seen)
    short.write([8], random_codes(1, 16))
    assert table.num_seen == 5
    with pytest.raises(ValueError, match="cannot truncate codes of 64 bits to 128 bits"):
        table.truncate(128)


def test_merge_takes_what_the_other_has_seen():
    codes = random_codes(20, 32)
    tables = [CodeTable(20, 32) for _ in range(2)]
    tables[0].write(torch.arange(0, 12), codes[:12])
    tables[1].write(torch.arange(10, 18), codes[10:18].flip(1))
    tables[0].merge(tables[1])
    assert torch.equal(tables[0].codes[:10], codes[:10])
    assert torch.equal(tables[0].codes[10:18], codes[10:18].flip(1))
    assert tables[0].num_seen == 18
    with pytest.raises(ValueError, match="20 samples of 32 bits here, 20 of 16 there"):
        tables[0].merge(CodeTable(20, 16))


def test_save_and_load(tmp_path):
    table = CodeTable(21, 40)
    table.write(torch.arange(0, 21, 2), random_codes(11, 40))
    table.save(tmp_path / "codes.safetensors")
    loaded = CodeTable.load(tmp_path / "codes.safetensors")
    assert torch.equal(loaded.codes, table.codes)
    assert torch.equal(loaded.seen, table.seen)
    assert [file.name for file in tmp_path.iterdir()] == ["codes.safetensors"]


def scalar_codes(n=30, seed=0, bits=64):
    x = torch.randn(n, 12, generator=torch.Generator().manual_seed(seed))
    hasher = ScalarHasher(12, bits)
    hasher.update(x)
    return hasher.encode(x)


def test_a_table_of_several_bits_keeps_what_they_mean(tmp_path):
    made = scalar_codes()
    table = CodeTable(40, 64, scheme=made.scheme)
    table.write(torch.arange(20), made[:20])
    other = CodeTable(40, 64, scheme=made.scheme)
    other.write(torch.arange(20, 30), made[20:])
    table.merge(other)
    assert repr(table) == 'CodeTable(n=40, bits=64, code="scalar", seen=30)'
    table.save(tmp_path / "codes.safetensors")
    loaded = CodeTable.load(tmp_path / "codes.safetensors")
    assert loaded.scheme.identity == made.scheme.identity
    expected = scalar_topk(made, made, 5, backend="plain")
    for each in (table, loaded):
        found = scalar_topk(made, each.scalar[:30], 5, backend="plain")
        assert torch.equal(found.indices, expected.indices)
        assert torch.equal(found.distances, expected.distances)


def test_codes_that_mean_something_else_are_refused():
    made, others = scalar_codes(), scalar_codes(seed=1)
    table, signs = CodeTable(30, 64, scheme=made.scheme), CodeTable(30, 64)
    with pytest.raises(ValueError, match="made with other statistics than those in the table"):
        table.write(torch.arange(30), others)
    with pytest.raises(TypeError, match=r"codes must be ScalarCodes, which ScalarHasher\.encode makes, got Tensor"):
        table.write(torch.arange(30), made.packed)
    with pytest.raises(TypeError, match=r"CodeTable\(n, bits, scheme=hasher.scheme\)"):
        signs.write(torch.arange(30), made)
    for other in (signs, CodeTable(30, 64, scheme=others.scheme)):
        with pytest.raises(ValueError, match="cannot merge tables whose codes mean different things"):
            table.merge(other)
    with pytest.raises(ValueError, match="are not nested"):
        table.truncate(32)
    with pytest.raises(ValueError, match="this table holds sign codes"):
        _ = signs.scalar
    with pytest.raises(ValueError, match="codes of this scheme have 64 bits, got bits=128"):
        CodeTable(30, 128, scheme=made.scheme)
    assert table.num_seen == signs.num_seen == 0


def test_a_crash_while_saving_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "codes.safetensors"
    CodeTable(5, 8).save(path)
    before = path.read_bytes()

    def crash(*_):
        raise OSError("disk full")

    for step in ("lookalike.codes.save_file", "lookalike.codes.Path.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(step, crash)
            with pytest.raises(OSError, match="disk full"):
                CodeTable(50, 8).save(path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


def save_and_be_killed(path):
    codes.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    CodeTable(50, 8).save(path)


def test_a_process_killed_while_saving_leaves_the_old_file(tmp_path):
    path = tmp_path / "codes.safetensors"
    CodeTable(5, 8).save(path)
    assert run_function(save_and_be_killed, path).returncode == -signal.SIGKILL
    assert len(CodeTable.load(path)) == 5


def test_unreadable_files_get_a_sentence(tmp_path):
    path = tmp_path / "codes.safetensors"
    CodeTable(500, 8).save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is truncated or not a safetensors file"):
        CodeTable.load(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is truncated or not a safetensors file"):
        CodeTable.load(path)
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="is a safetensors file but not a code table"):
        CodeTable.load(path)
    save_file({"x": torch.zeros(1)}, path, {"format": "lookalike.CodeTable", "version": "99"})
    with pytest.raises(ValueError, match="code table of version 99; this lookalike reads version 1"):
        CodeTable.load(path)
    with pytest.raises(FileNotFoundError):
        CodeTable.load(tmp_path / "absent")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"codes": torch.zeros(100, 9, dtype=torch.uint8)}, "its parts do not fit together"),
        ({"codes": torch.zeros(90, 8, dtype=torch.uint8)}, "its parts do not fit together"),
        ({"marks": torch.zeros(13)}, "its parts do not fit together"),
        ({"levels": torch.zeros(3)}, "not the state of a scheme"),
        ({"scheme": "{"}, "not the state of a scheme"),
        ({"scheme": "[]"}, "not the state of a scheme"),
    ],
)
def test_damaged_tables_get_a_sentence(change, sentence, tmp_path):
    path, hasher = tmp_path / "codes.safetensors", ScalarHasher(8, 64)
    hasher.update(torch.randn(100, 8))
    CodeTable(100, 64, scheme=hasher.scheme).save(path)
    with safe_open(path, framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, value in change.items():
        (metadata if name == "scheme" else tensors)[name] = value
    save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match=sentence):
        CodeTable.load(path)


N, BITS = 1_000_000, 512


def fill_a_table():
    """Print by how much the memory grows, and what the table says of it."""
    batch = torch.randint(0, 256, (4096, BITS // 8), dtype=torch.uint8)
    CodeTable(8192, BITS).write(torch.arange(4096), batch)  # load everything first
    before = resident_bytes()
    table = CodeTable(N, BITS)
    for start in range(0, N - 4096, 4096):
        table.write(torch.arange(start, start + 4096), batch)
    print(resident_bytes() - before, table.nbytes)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_codes_and_marks_and_nothing_else():
    run = run_function(fill_a_table)
    assert run.returncode == 0, run.stderr
    resident, nbytes = map(int, run.stdout.split())
    assert nbytes == N * BITS // 8 + N // 8
    assert resident < 1.05 * nbytes + (4 << 20)  # the rest: whole pages and the last batch
