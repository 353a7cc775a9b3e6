"""Tools under the names that `promptools discover` has found: which are matched, what is accepted, what is left out."""

import json

import pytest

from promptools.errors import UsageError
from promptools.harness.agent.toolbox import Toolbox
from promptools.harness.sandbox import LocalSandbox
from promptools.harness.toolsets import AgentTool
from promptools.harness.toolsets.discovered_tools import read_discovered_tools
from promptools.harness.toolsets.in_distribution import gpt_oss_tools
from promptools.schema import Tools
from promptools.types import Tool


def schema(*names):
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names[:1])}


def found(name, *parameters, names=(), aliases=None):
    marks = {"names": list(names), "aliases": aliases or {}}
    function = {"name": name, "description": "", "parameters": schema(*parameters), "x-promptools": marks}
    return {"type": "function", "function": function}


def discovered(*tools):
    return tuple(Tools(tools, strict=True))


def own(name, *parameters, names=()):
    return AgentTool(Tool(name, f"Own {name}.", schema(*parameters), names=names), lambda **given: [name, given])


def run(toolbox, name, **arguments):
    prepared = toolbox.prepare_call("c", name, json.dumps(arguments))
    return prepared.result.content if prepared.work is None else prepared.work()


def test_a_tool_has_the_name_that_the_model_knows():
    known = found(
        "read_file", "path", "encoding", names=["cat", "open_source"], aliases={"file": "path", "e": "encoding"}
    )
    toolbox = Toolbox([own("open_source", "path"), own("look", "at")], discovered=discovered(known))
    assert toolbox.tools.names == ("read_file", "look")
    (declared, _) = toolbox.tools
    assert (declared.description, declared.parameters) == ("Own open_source.", schema("path"))
    for name in ("read_file", "cat", "open_source"):
        assert run(toolbox, name, file="a") == ["open_source", {"path": "a"}]
    assert run(toolbox, "look", at="b") == ["look", {"at": "b"}]
    assert toolbox.not_offered == ()


def test_a_name_that_the_model_knows_stays():
    known = (found("grep", "query", names=["search"]), found("search_files", "query", names=["rg"]))
    toolbox = Toolbox([own("search_files", "query", names=("search",))], discovered=discovered(*known))
    assert toolbox.tools.names == ("search_files",)
    for name in ("grep", "search", "rg", "search_files"):
        assert run(toolbox, name, query="x") == ["search_files", {"query": "x"}]


def test_what_dispatch_runs_is_offered_and_the_rest_is_named():
    known = discovered(found("bash", "command", names=["sh"], aliases={"cmd": "command"}), found("browser", "url"))
    toolbox = Toolbox([own("look", "at")], {"bash": lambda command: command.upper()}, known)
    assert toolbox.tools.names == ("look", "bash")
    assert run(toolbox, "sh", cmd="ls") == "LS"
    assert toolbox.not_offered == ("browser",)
    every = Toolbox([own("look", "at")], lambda name, arguments: (name, arguments), known)
    assert every.tools.names == ("look", "bash", "browser")
    assert run(every, "browser", url="u") == ("browser", {"url": "u"})


def test_a_function_in_dispatch_is_found_by_its_own_name():
    tool = {"name": "open_source", "parameters": schema("path")}
    toolbox = Toolbox(
        [tool], {"open_source": lambda path: path}, discovered(found("cat", "path", names=["open_source"]))
    )
    assert toolbox.tools.names == ("cat",)
    assert run(toolbox, "cat", path="a") == "a"


def test_another_name_never_leads_to_two_tools():
    tools = [own("tree", "path"), own("search", "query", names=("find",))]
    known = discovered(found("tree", "path", names=["find", "ls"]), found("locate", "q", names=["search"]))
    toolbox = Toolbox(tools, discovered=known)
    assert toolbox.tools.names == ("tree", "locate")
    assert run(toolbox, "find", query="x") == ["search", {"query": "x"}]
    assert run(toolbox, "ls", path="x") == ["tree", {"path": "x"}]
    sent = Tools(toolbox.payloads(marks=True))  # an ambiguous name would be an error
    assert sent.find("find")[0].name == "locate"


def test_the_marks_of_a_renamed_tool_stay(tmp_path):
    known = discovered(found("run_shell", "command", names=["container.exec"]), found("apply_patch", "patch"))
    with LocalSandbox(tmp_path, allow_unsandboxed=True) as sandbox:
        toolbox = Toolbox([gpt_oss_tools(tmp_path, sandbox)], discovered=known)
        assert [name for name in toolbox.tools.names if not name.startswith("repo_browser")] == [
            "run_shell",
            "apply_patch",
        ]
        assert toolbox.tools.get("run_shell").dangerous
        assert "hello" in run(toolbox, "run_shell", cmd=["echo", "hello"])
        assert "hello" in run(toolbox, "container.exec", command=["echo", "hello"])


def test_without_discovered_tools_nothing_changes():
    tools = [own("look", "at")]
    assert Toolbox(tools, discovered=()).payloads(marks=True) == Toolbox(tools).payloads(marks=True)


def test_files_that_are_none(tmp_path):
    with pytest.raises(UsageError, match=r"tools\.json.*promptools discover"):
        read_discovered_tools(tmp_path)
    file = tmp_path / "tools.json"
    for text, told in (("{", "is not valid JSON"), ("{}", "no list of tools"), ('[{"description": "x"}]', "name")):
        file.write_text(text)
        with pytest.raises(UsageError, match=told):
            read_discovered_tools(file)
    file.write_text("[]")
    assert read_discovered_tools(tmp_path) == ()
