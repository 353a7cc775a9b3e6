"""The matrix page, and its head in the README, are what `make matrix` makes of the results that are kept."""

import json

import matrix
import pytest

from promptools.harness.verification.comparison import ABOUT


def test_the_page_is_made_of_what_is_kept():
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.page(matrix.kept())
    assert matrix.kept()


def test_the_readme_shows_its_head():
    readme = matrix.README.read_text(encoding="utf-8")
    assert readme == matrix.with_head(readme, matrix.kept())
    page = [line.strip("|").split(" | ") for line in matrix.PAGE.read_text(encoding="utf-8").splitlines()]
    first = next(cells for cells in page if len(cells) == len(matrix.COLUMNS) and cells[2][:2] == "20")
    table = readme.partition(matrix.BEGIN)[2].partition(matrix.END)[0].splitlines()
    assert table[2].strip("|").split(" | ") == [*first[:2], *first[3:5], f"{first[5]} "]
    assert len(table) == 2 + min(matrix.README_ROWS, len(matrix.kept()))


def test_a_readme_without_marks_is_refused():
    with pytest.raises(SystemExit, match="no place for the table"):
        matrix.with_head("# promptools\n", matrix.kept())


def test_a_later_result_replaces_the_earlier_one(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "KEPT", tmp_path / "kept.jsonl")
    monkeypatch.setattr(matrix, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(matrix, "README", tmp_path / "README.md")
    matrix.README.write_text(f"before\n{matrix.BEGIN}old\n{matrix.END}after\n", encoding="utf-8")
    rate = {"estimate": 0.5, "low": 0.25, "high": 0.75}
    side = {"rate": rate}
    scenario = {"name": "restraint", "cases": 8, "alone": side, "through": side, "difference": rate, "verdict": "same"}
    run = {
        **dict.fromkeys(ABOUT, "x"),
        "server": "vllm 1",
        "model": "m",
        "settings": {"max_tokens": 5},
        "conclusion": "Good.",
        "overall": scenario,
        "scenarios": [scenario],
        "rows": [1],
    }
    result = tmp_path / "result.json"
    for server, model in (("vllm 1", "m"), ("ollama 2", "m"), ("vllm 3", "m")):
        result.write_text(json.dumps({**run, "server": server, "model": model}), encoding="utf-8")
        matrix.main(str(result))
    assert [(each["server"], "rows" in each) for each in matrix.kept()] == [("ollama 2", False), ("vllm 3", False)]
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| vllm 3 | m | x | 8 | 50 % [25, 75] | 50 % [25, 75] | +50 [+25, +75] |" in page
    assert "vllm 1" not in page
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| vllm 3 | m | 8 | 50 % [25, 75] | 50 % [25, 75] |" in readme
    assert readme.startswith(f"before\n{matrix.BEGIN}| server |")
    assert readme.endswith(f"|\n{matrix.END}after\n")
    assert "## m on ollama 2\n\nx, promptools x, max_tokens 5. Good.\n" in page


@pytest.mark.parametrize(("through", "better"), [(3, "server alone"), (4, "same"), (5, "promptools")])
def test_a_benchmark_of_others_may_find_the_server_alone_better(tmp_path, monkeypatch, through, better):
    monkeypatch.setattr(matrix, "OUTSIDE", tmp_path / "outside.jsonl")
    run = {
        "benchmark": "exam",
        "version": "1.2",
        "server": "vllm 1",
        "model": "m",
        "date": "2026-11-28",
        "most": 30,
        "alone": {"points": 4},
        "through": {"points": through},
        "note": "Few points.",
        "command": "exam --short",
    }
    matrix.OUTSIDE.write_text(json.dumps(run) + "\n", encoding="utf-8")
    page = matrix.page([])
    assert f"| exam 1.2 | vllm 1 | m | 2026-11-28 | 4 of 30 | {through} of 30 | {better} |\n" in page
    assert "\n\nexam: Few points.\n\n```sh\nexam --short\n```\n" in page
