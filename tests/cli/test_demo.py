"""`lookalike demo`."""


def test_it_prints_a_table(run_here):
    code, out, err = run_here("demo", "--n", "3000", "--dim", "64", "--bits", "256,64", "--k", "16")
    assert (code, err) == (0, "")
    rows = {line.split("│")[1].strip(): line.split("│") for line in out.splitlines() if line.startswith("│")}
    assert list(rows) == ["float32, exact", "64 bits", "256 bits"]
    shares = [float(row[4].strip().rstrip("%")) for row in rows.values()]
    assert shares[0] == 100
    assert 10 < shares[1] < shares[2] < 100
    assert rows["64 bits"][2].strip() == "8"
