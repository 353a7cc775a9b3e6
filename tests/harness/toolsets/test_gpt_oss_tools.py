"""The in-distribution tools together: what is declared, and calls as models make them."""

import json

import pytest

from promptools.errors import UsageError
from promptools.harness.agent.toolbox import Toolbox
from promptools.harness.sandbox import LocalSandbox
from promptools.harness.toolsets.in_distribution import gpt_oss_tools


@pytest.fixture
def sandbox(tmp_path):
    made = LocalSandbox(tmp_path, allow_unsandboxed=True)
    yield made
    made.close()


def declared(toolset):
    return {
        entry.tool.name: (
            list(entry.tool.parameters["properties"]),
            entry.tool.parameters.get("required", []),
        )
        for entry in toolset.tools
    }


COMMON = {
    "container.exec": (["command"], ["command"]),
    "repo_browser.print_tree": (["path", "depth"], []),
    "repo_browser.search": (["path", "query", "max_results"], ["query"]),
}


def test_the_set_of_the_paper(sandbox, tmp_path):
    assert declared(gpt_oss_tools(tmp_path, sandbox)) == {
        **COMMON,
        "repo_browser.open_file": (["path", "line_start", "line_end"], ["path"]),
        "repo_browser.apply_patch": (["patch"], []),
    }


def test_the_set_of_its_code(sandbox, tmp_path):
    toolset = gpt_oss_tools(tmp_path, sandbox, variant="code", python="stateless")
    assert declared(toolset) == {
        **COMMON,
        "repo_browser.open_file": (["path", "line_start", "line_end", "line_numbers"], ["path"]),
        "repo_browser.list_dir": (["path", "depth"], []),
        "repo_browser.apply_patch": (["patch"], []),
        "python": (["code"], ["code"]),
    }
    assert {entry.tool.name for entry in toolset.tools if not entry.parallel} == {
        "container.exec", "repo_browser.apply_patch", "python",
    }  # fmt: skip
    assert set(toolset.namespaces) == {"container", "repo_browser"}


def test_mistakes_are_told(sandbox, tmp_path):
    with pytest.raises(UsageError, match="'paper' and 'code'"):
        gpt_oss_tools(tmp_path, sandbox, variant="other")
    with pytest.raises(UsageError, match="is not the sandbox's"):
        gpt_oss_tools(tmp_path.parent, sandbox)


@pytest.fixture
def call(sandbox, tmp_path, request):
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    toolset = gpt_oss_tools(tmp_path, sandbox, variant=getattr(request, "param", "code"), python="stateless")
    box = Toolbox([toolset])

    def make(name, arguments):
        prepared = box.prepare_call("1", name, arguments)
        assert prepared.work is not None, prepared.result
        return prepared.work()

    return make


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("container.exec", '{"command": ["bash", "-lc", "echo a | tr a b"]}', "b\n"),
        ("container.exec", '{"command": "echo a b | tr a b"}', "b b\n"),
        ("container.exec", '{"cmd": ["echo", "x"], "timeout": 10000}', "x\n"),
        ("container.exec", '{"command": ["echo", "x"], "workdir": ""}', "x\n"),
        ("repo_browser.print_tree", '{"path": "", "depth": 1}', ".\n└── a.py\n\n0 folders, 1 files"),
        ("repo_browser.print_tree", '{"path": "/", "depth": "2"}', None),
        ("repo_browser.print_tree", '{"path": ""}', ".\n└── a.py\n\n0 folders, 1 files"),
        ("repo_browser.print_tree", "{}", ".\n└── a.py\n\n0 folders, 1 files"),
        ("repo_browser.search", '{"query": "^t"}', "a.py:2:two\na.py:3:three"),
        ("repo_browser.search", '{"file": "a.py", "query": "^t"}', "a.py:2:two\na.py:3:three"),
        ("repo_browser.search", '{"path": "", "pattern": "^t"}', "a.py:2:two\na.py:3:three"),
        ("repo_browser.search", '{"path": "a.py", "query": "t", "max_results": 1}', None),
        ("repo_browser.open_file", '{"file_path": "a.py", "start_line": 2, "end_line": 2}', "     2\ttwo"),
        ("repo_browser.open_file", '{"path": "a.py", "line_start": "3", "line_numbers": false}', "three"),
        ("repo_browser.list_dir", '{"path": "."}', "a.py"),
        ("python", '{"code": "1 + 1"}', "2\n"),
    ],
)
def test_calls_as_models_make_them(call, name, arguments, result):
    if result is None and '"/"' in arguments:
        with pytest.raises(ValueError, match="outside of"):
            call(name, arguments)
    elif result is None:
        assert "only the first 1 results" in call(name, arguments)
    else:
        assert call(name, arguments) == result


def test_a_patch_changes_the_files(call, tmp_path):
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n one\n-two\n+2\n*** End Patch\n"
    call("repo_browser.apply_patch", json.dumps({"patch": patch}))
    assert (tmp_path / "a.py").read_text() == "one\n2\nthree\n"


@pytest.mark.parametrize("call", ["paper"], indirect=True)
@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("repo_browser.list_dir", '{"path": "", "depth": 1}', ".\n└── a.py\n\n0 folders, 1 files"),
        ("repo_browser.list_files", '{"path": "", "depth": 1}', ".\n└── a.py\n\n0 folders, 1 files"),
        ("repo_browser.list_files", "{}", ".\n└── a.py\n\n0 folders, 1 files"),
        ("repo_browser.read_file", '{"file_path": "a.py", "start_line": 3}', "     3\tthree"),
        ("repo_browser.find", '{"path": "", "pattern": "two"}', "a.py:2:two"),
    ],
)
def test_other_names_of_the_tools(call, name, arguments, result):
    assert call(name, arguments) == result


def test_whole_bodies_are_code_and_patches(sandbox, tmp_path):
    toolset = gpt_oss_tools(tmp_path, sandbox, python="stateful")
    free = {entry.tool.name: entry.tool.free_text for entry in toolset.tools if entry.tool.free_text}
    assert free == {"repo_browser.apply_patch": "patch", "python": "code"}
