"""Other names of tools: what models call a tool, in place of the name that the app declares."""

import pytest

from promptools import StreamParser, Tools, UsageError, dialects, parse
from promptools.modes.tool_names import rename_tools
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile
from promptools.types import Call, Tool

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def tool(name, *names):
    function = {"name": name, "parameters": PATH}
    return {"type": "function", "function": function, "x-promptools": {"names": list(names)}}


OPEN = tool("open_file", "read_file", "repo_browser.read_file")
TREE = tool("print_tree", "list_files")
TOOLS = Tools([OPEN, TREE])


def resolved(tools, written):
    match = tools.find(written)
    return match and (match[0].name, match[1] and match[1].detail)


@pytest.mark.parametrize(
    "written",
    ["read_file", "repo_browser.read_file", "functions.read_file", "ReadFile", "read-file:0", "repo_browser_read_file"],
)
def test_another_name_is_the_tool_with_a_fix(written):
    assert resolved(TOOLS, written) == ("open_file", f"{written!r} to 'open_file'")


def test_they_are_not_declared():
    assert TOOLS.names == ("open_file", "print_tree")
    assert TOOLS.all_names == ("open_file", "print_tree", "read_file", "repo_browser.read_file", "list_files")
    assert "read_file" not in TOOLS.json_text
    assert "names" not in TOOLS.json_text


def test_what_is_known_of_the_tool_is_known_by_them():
    assert TOOLS.get("read_file") == TOOLS.get("open_file")
    assert TOOLS.keys("read_file") == {"path"}
    assert TOOLS.types("read_file", "path") == {"string"}
    assert TOOLS.graph("read_file") is TOOLS.graph("open_file")
    assert not TOOLS.fits("read_file", {"path": "a"})  # there is a fix to record


@pytest.mark.parametrize("declared", ["read_file", "readFile", "read-file"])
def test_a_declared_name_wins(declared):
    tools = Tools([OPEN, tool(declared)])
    assert resolved(tools, declared) == (declared, None)
    assert resolved(tools, "read_file")[0] == declared
    assert resolved(tools, "repo_browser.read_file")[0] == "open_file"
    assert tools.notes == ()


def test_a_name_that_two_tools_have_is_refused():
    with pytest.raises(UsageError, match=r"'read_file' is given to 'open_file' and 'show'"):
        Tools([OPEN, tool("show", "read_file")])
    with pytest.raises(UsageError, match=r"'read_file' is given to"):
        Tools.prepare([OPEN, tool("show", "read_file")])


def test_in_marks_for_tools_that_were_not_seen_it_is_not_used():
    tools = Tools([OPEN, tool("show")]).with_marks({"show": {"names": ["read_file", "show_file"]}})
    assert resolved(tools, "read_file") is None
    assert resolved(tools, "show_file")[0] == "show"
    assert tools.notes == ("the other name 'read_file' is not used: 'open_file' and 'show' have it",)


def test_marks_add_names():
    given = Tools([Tool("open_file", "", PATH, names=("cat",))], marks={"open_file": {"names": ("view", "cat")}})
    assert given[0].names == ("cat", "view")
    assert rename_tools(given, {"open_file": "open_file_2"})[0].names == ("cat", "view")


@pytest.mark.parametrize("names", ["read_file", [1], [""], {"a": "b"}])
def test_anything_else_is_an_error(names):
    with pytest.raises(UsageError, match=r"the mark 'names' is .*; expected a list of names"):
        Tools([tool("open_file")], marks={"open_file": {"names": names}})


@pytest.mark.parametrize("dialect", dialects.names())
def test_every_dialect_calls_by_them(dialect):
    written = dialects.get(dialect).render_calls([Call("c1", "read_file", {"path": "a.txt"}, '{"path": "a.txt"}')])
    by_its_own = dialects.get(dialect).render_calls([Call("c1", "open_file", {"path": "a.txt"}, '{"path": "a.txt"}')])
    whole = parse(written, TOOLS, expect=dialect, finish_reason="stop")
    own = parse(by_its_own, TOOLS, expect=dialect, finish_reason="stop")
    assert [(call.name, call.arguments) for call in whole.calls] == [("open_file", {"path": "a.txt"})]
    more = [fix for fix in whole.calls[0].fixes if fix not in own.calls[0].fixes]
    assert [(fix.kind, fix.detail) for fix in more] == [("name", "'read_file' to 'open_file'")]
    parser = StreamParser(TOOLS, expect=dialect)
    for letter in written:
        parser.feed(letter)
    parser.close("stop")
    assert [(call.name, call.arguments) for call in parser.reply.calls] == [("open_file", {"path": "a.txt"})]


@pytest.mark.parametrize("dialect", dialects.names())
def test_they_are_evidence_as_the_tools_own_names_are(dialect):
    written, by_its_own = (
        dialects.get(dialect).render_calls([Call("c1", name, {"path": "a.txt"}, '{"path": "a.txt"}')])
        for name in ("read_file", "open_file")
    )
    names, own = ([call.name for call in parse(text, TOOLS).calls] for text in (written, by_its_own))
    assert names == own


def choice(**body):
    body = {"model": "m", "messages": [], "tools": [OPEN, TREE], **body}
    return parse_request(body, Profile())


def test_tool_choice_takes_them():
    request = choice(tool_choice={"type": "function", "function": {"name": "read_file"}})
    assert (request.choice.name, request.offered.names) == ("open_file", ("open_file",))
    allowed = {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "function", "name": "list_files"}]}}
    assert choice(tool_choice=allowed).offered.names == ("print_tree",)
