"""The part of the matrix by `verify`, and its head in the README, are what `make matrix` makes of what is kept."""

import json
from pathlib import Path

import matrix
import pytest
import results

from benchmarks.models import page as models
from benchmarks.models.markdown import begin, end, read_part, write_part
from promptools.harness.verification.comparison import ABOUT


def test_the_page_is_made_of_what_is_kept():
    assert read_part(matrix.PAGE, matrix.TARGET) == matrix.part(matrix.kept())
    assert matrix.kept()


def test_the_readme_shows_its_head():
    table = read_part(matrix.README, matrix.TARGET)
    assert table == matrix.readme_part(matrix.kept())
    whole = read_part(matrix.PAGE, matrix.TARGET).splitlines()
    rows = [line.split(" | ")[:5] for line in whole if line.count(" | ") == len(matrix.COLUMNS) - 1]
    shown = [line.removesuffix(" |").split(" | ") for line in table.splitlines()]
    assert shown == rows[: 2 + min(matrix.README_ROWS, len(matrix.kept()))]


@pytest.mark.parametrize("kept", ["", begin("matrix"), end("matrix"), end("matrix") + begin("matrix")])
def test_a_page_without_both_marks_is_refused(tmp_path, kept):
    readme = tmp_path / "README.md"
    readme.write_text(f"# promptools\n{kept}", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"README\.md has no place for what `make matrix` makes"):
        write_part(readme, "matrix", "anything")
    assert readme.read_text(encoding="utf-8") == f"# promptools\n{kept}"


GENERATORS = {
    matrix.TARGET: matrix.main,
    models.TARGET: models.write,
    results.TARGET: lambda: results.main([]),
}


@pytest.mark.parametrize("target", GENERATORS)
def test_a_generator_rewrites_its_own_part_and_nothing_else(tmp_path, monkeypatch, target):
    """The copy has other line ends, and a part of each that is out of date."""
    copy = tmp_path / "matrix.md"
    monkeypatch.setattr(matrix, "README", tmp_path / "README.md")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "KEPT", tmp_path / "results.jsonl")
    matrix.README.write_text(f"{begin('matrix')}{end('matrix')}", encoding="utf-8")
    results.KEPT.write_bytes((Path(results.__file__).parents[1] / "tests" / "e2e" / "results.jsonl").read_bytes())
    for module in (matrix, models, results):
        assert module.PAGE.name == copy.name
        parts = module.PAGE.read_bytes().decode()
        monkeypatch.setattr(module, "PAGE", copy)
    copy.write_bytes(parts.replace("## ", "##  ").replace("right", "right\r\n\x0c").encode())
    before = {each: read_part(copy, each) for each in GENERATORS}
    outside = copy.read_bytes().decode().replace(before[target], "")
    GENERATORS[target]()
    after = {each: read_part(copy, each) for each in GENERATORS}
    assert {each for each in GENERATORS if before[each] != after[each]} == {target}
    assert copy.read_bytes().decode().replace(after[target], "") == outside


def test_a_later_result_replaces_the_earlier_one(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "KEPT", tmp_path / "kept.jsonl")
    monkeypatch.setattr(matrix, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(matrix, "README", tmp_path / "README.md")
    for path in (matrix.README, matrix.PAGE):
        path.write_text(f"before\n{begin('matrix')}old\n{end('matrix')}after\n", encoding="utf-8")
    rate = {"estimate": 0.5, "low": 0.25, "high": 0.75}
    side = {"rate": rate, "right": 4}
    scenario = {"name": "restraint", "cases": 8, "alone": side, "through": side, "difference": rate, "verdict": "same"}
    better = {**scenario, "name": "new", "through": {"rate": rate, "right": 3}, "verdict": "server alone"}
    run = {
        **dict.fromkeys(ABOUT, "x"),
        "server": "vllm 1",
        "model": "m",
        "settings": {"max_tokens": 5},
        "conclusion": "Good.",
        "overall": scenario,
        "scenarios": [better, scenario],
        "rows": [1],
    }
    result = tmp_path / "result.json"
    for server, scenarios in (("vllm 1", [scenario]), ("ollama 2", [scenario]), ("vllm 3", [better, scenario])):
        result.write_text(json.dumps({**run, "server": server, "scenarios": scenarios}), encoding="utf-8")
        matrix.main(str(result))
    assert [(each["server"], "rows" in each) for each in matrix.kept()] == [("ollama 2", False), ("vllm 3", False)]
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| vllm 3 | m | 8 | 50 % [25, 75] | 50 % [25, 75] | Good. | x | x |\n" in page
    assert "vllm 1" not in page
    assert "Settings: max_tokens 5.\n" in page
    assert "| scenario | m on ollama 2 | m on vllm 3 |\n" in page
    assert "| restraint | 4/8 → 4/8 | 4/8 → 4/8 |\n| new | - | **4/8 → 3/8 (50 %)** |\n" in page
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| vllm 3 | m | 8 | 50 % [25, 75] | 50 % [25, 75] |" in readme
    for text in (readme, page):
        assert text.startswith(f"before\n{begin('matrix')}")
        assert text.endswith(f"\n{end('matrix')}after\n")
    result.write_text(json.dumps({**run, "server": "ollama 4", "settings": {"max_tokens": 6}}), encoding="utf-8")
    matrix.main(str(result))
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "Settings of m on ollama 4: max_tokens 6. Settings of m on vllm 3: max_tokens 5.\n" in page


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
        "command": "exam --short --model m",
    }
    matrix.OUTSIDE.write_text(json.dumps(run) + "\n", encoding="utf-8")
    page = matrix.part([])
    assert f"| exam 1.2 | vllm 1 | m | 2026-11-28 | 4 of 30 | {through} of 30 | {better} |\n" in page
    assert "\n\n- exam on m: Few points.\n\n```sh\nexam --short --model MODEL\n```\n" in page
