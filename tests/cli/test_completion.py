"""Completion: what a shell gets for a line, and the lines by which it asks."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from promptools.cli import main
from promptools.errors import install_command

ANSWERS = """
import argcomplete, io, json, os, sys
from promptools.cli import build_parser
found = {}
for line in json.loads(sys.argv[1]):
    os.environ.update(_ARGCOMPLETE="1", COMP_LINE=line, COMP_POINT=str(len(line)))
    answer = io.StringIO()
    try:
        parser = build_parser(loaded=line.split())
        argcomplete.autocomplete(parser, exit_method=sys.exit, output_stream=answer)
    except SystemExit:
        pass
    found[line] = [each.strip() for each in answer.getvalue().split("\\013")]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers():
    """One process for all lines: argcomplete writes to descriptors that a process of pytest has in use."""
    lines = [
        "promptools ",
        "promptools pro",
        "promptools chat --mo",
        "promptools chat http://localhost:8000/v1 --mod",
        "promptools chat --mode ",
        "promptools eval ",
        "promptools eval aime --outp",
        "promptools completion ",
        "promptools nothing --",
    ]
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS, json.dumps(lines)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_the_options_of_a_command_and_their_choices(answers):
    assert {"chat", "completion", "serve"} <= set(answers["promptools "])
    assert sorted(answers["promptools pro"]) == ["probe", "providers"]
    assert set(answers["promptools chat --mo"]) == {"--mode", "--model"}
    assert set(answers["promptools chat http://localhost:8000/v1 --mod"]) == {"--mode", "--model"}
    assert set(answers["promptools chat --mode "]) == {"native", "prompt", "harmony", "raw"}
    assert {"bfcl", "aime"} <= set(answers["promptools eval "])
    assert answers["promptools eval aime --outp"] == ["--output"]
    assert {"bash", "zsh", "fish"} <= set(answers["promptools completion "])
    assert "--mode" not in answers["promptools nothing --"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_lines_of_a_shell(shell, capsys):
    assert main(["completion", shell]) == 0
    told = capsys.readouterr().out
    assert "_ARGCOMPLETE" in told
    assert "promptools" in told


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_by_its_lines():
    script = f"""
        PATH={Path(sys.executable).parent}:$PATH
        eval "$(promptools completion bash)"
        COMP_LINE="promptools chat --dialect-" COMP_POINT=26 COMP_TYPE=9
        _python_argcomplete promptools
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--dialect-file"]


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert main(["completion", "bash"]) == 2
    told = f"promptools completion: completion needs argcomplete: {install_command('completion')}\n"
    assert capsys.readouterr().err == told
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert main([]) == 2  # a line of the shell that was left in a file
    assert capsys.readouterr().err == told
