"""Which tool arguments without a name are for."""

from promptools.schema import Tools


def tool(name, *names, required=(), **marks):
    properties = {name: {"type": "string"} for name in names}
    return {
        "name": name,
        "parameters": {"type": "object", "properties": properties, "required": list(required)},
        "x-promptools": marks,
    }


def inferred(tools, arguments, **options):
    match = Tools(tools).infer(arguments, **options)
    return match and match[0].name


def test_the_one_tool_that_fits():
    tools = Tools([tool("web_search", "query", "num_results", required=["query"]), tool("read_file", "filepath")])
    fit, fixes = tools.infer({"query": "x"})
    assert fit.name == "web_search"
    assert [(fix.kind, fix.detail) for fix in fixes] == [("infer", "arguments without a name fit 'web_search' only")]


def test_nothing_fits_nothing():
    assert inferred([tool("now")], {}) is None
    assert inferred([], {"a": "x"}) is None


def test_every_key_must_be_known():
    assert inferred([tool("search", "query")], {"query": "x", "other": "y"}) is None


def test_required_ones_must_be_there_and_values_must_fit():
    search = tool("search", "query", "lang", required=["query"])
    assert inferred([search], {"lang": "x"}) is None
    assert inferred([search], {"query": {"a": 1}}) is None
    assert inferred([search], {"query": 5}) == "search"


def test_two_that_fit_are_none():
    assert inferred([tool("read", "path"), tool("list", "path")], {"path": "x"}) is None
    assert inferred([tool("read", "filepath"), tool("open", "filepath")], {"path": "x"}) is None


def test_declared_names_outrank_aliases():
    tools = [tool("read_file", "filepath"), tool("list_directory", "path")]
    assert inferred(tools, {"path": "/x"}) == "list_directory"
    assert inferred(tools[:1], {"path": "/x"}) == "read_file"


def test_an_alias_that_cannot_be_renamed_fits_nothing():
    assert inferred([tool("read", "filepath")], {"path": "a", "file": "b"}) is None


def test_dangerous_and_unwilling_tools_are_never_inferred():
    assert inferred([tool("shell", "command", dangerous=True)], {"command": "ls"}) is None
    assert inferred([tool("shell", "command", dangerous=True, infer=True)], {"command": "ls"}) is None
    assert inferred([tool("shell", "command", infer=False)], {"command": "ls"}) is None


def test_a_dangerous_tool_does_not_hide_another():
    tools = [tool("shell", "command", dangerous=True), tool("explain", "command")]
    assert inferred(tools, {"command": "ls"}) == "explain"


def test_optin_wants_the_mark():
    assert inferred([tool("search", "query")], {"query": "x"}, optin_only=True) is None
    assert inferred([tool("search", "query", infer=True)], {"query": "x"}, optin_only=True) == "search"
