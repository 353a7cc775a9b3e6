"""The table of two checkouts' benchmarks."""

import json

from benchmarks import compare


def write(path, rows):
    table = {
        "name": "broken",
        "rows": [{"target": None, "verdict": "", "ratio": None, "measured": {}} | row for row in rows],
    }
    path.write_text(json.dumps({"tables": [table]}))
    return str(path)


def test_rows_of_the_same_case_are_compared(tmp_path, monkeypatch, capsys):
    target = {"text": ">= 5x"}
    before = write(
        tmp_path / "before.json",
        [{"case": "a comma", "ratio": 16.0, "measured": {"ours": 0.0005, "theirs": 0.008}}, {"case": "gone"}],
    )
    after = write(
        tmp_path / "after.json",
        [
            {"case": "a comma", "ratio": 6.4, "measured": {"ours": 0.00125}, "target": target, "verdict": "met"},
            {"case": "new | other"},
        ],
    )
    monkeypatch.setattr("sys.argv", ["compare", before, after])
    compare.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "| broken | a comma | 500 us | 1.25 ms | 2.50x | 16.00 | 6.40 | >= 5x: met |",
        "",
        "Only before: 1 rows; only after: 1.",
    ]


def test_a_row_without_ours_shows_its_largest_size(tmp_path):
    sizes = {"case": "words", "measured": {"1 KB": 2e-6, "1000 KB": 3e-6}}
    memory = {"case": "a call", "measured": {"MB": 17.0}}
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for file in files:
        write(file, [sizes, memory])
    rows = [compare._rows(file) for file in files]
    assert [line.split(" | ")[2:5] for line in list(compare.compare(*rows))[2:4]] == [
        ["3 us", "3 us", "1.00x"],
        ["17 MB", "17 MB", "1.00x"],
    ]
