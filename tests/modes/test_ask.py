import pytest

from promptools.errors import UsageError
from promptools.modes.options import OPTIONS, Options
from promptools.modes.tool_request import ToolChoice, involves_tools, parse_request
from promptools.profiles import Profile


def tool(name, **schema):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", **schema}}}


A, B = tool("a"), tool("b")


def ask(**body):
    return parse_request({"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}, Profile())


def test_a_request_is_read_and_not_changed():
    body = {"model": "alias", "messages": [], "promptools": {"mode": "prompt"}, "stream": True, "seed": 3}
    kept = {**body}
    read = parse_request(body, Profile(), model="real", system_prompt="be brief")
    assert body == kept
    assert read.body == {"model": "real", "messages": [], "stream": True, "seed": 3}
    assert (read.model, read.stream, read.options.mode, read.system_prompt) == ("real", True, "prompt", "be brief")
    assert len(read.tools) == len(read.offered) == 0


@pytest.mark.parametrize(
    ("said", "choice", "offered"),
    [
        (None, ToolChoice(), ("a", "b")),
        ("auto", ToolChoice(), ("a", "b")),
        ("none", ToolChoice("none"), ()),
        ("required", ToolChoice("required"), ("a", "b")),
        ("any", ToolChoice("required"), ("a", "b")),
        ({"type": "function", "function": {"name": "b"}}, ToolChoice("named", "b"), ("b",)),
        ({"type": "function", "name": "b"}, ToolChoice("named", "b"), ("b",)),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [B]}},
            ToolChoice("required"),
            ("b",),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "a"}]}, ToolChoice(), ("a",)),
        ({"type": "auto"}, ToolChoice(), ("a", "b")),
        ({"type": "any"}, ToolChoice("required"), ("a", "b")),
        ({"type": "none"}, ToolChoice("none"), ()),
        ({}, ToolChoice(), ("a", "b")),
        ("", ToolChoice(), ("a", "b")),
    ],
)
def test_tool_choice(said, choice, offered):
    read = ask(tools=[A, B], tool_choice=said)
    assert (read.choice, read.offered.names, read.tools.names) == (choice, offered, ("a", "b"))
    assert read.choice.forced == (choice.kind in {"required", "named"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tools": [A], "tool_choice": "bogus"}, "'bogus' is not understood"),
        ({"tools": [A], "tool_choice": {"type": ["auto"]}}, "is not understood"),
        ({"tools": [A], "tool_choice": {"type": "function", "function": {"name": "z"}}}, "'z', which is not among"),
        ({"tool_choice": {"type": "function", "function": {"name": "z"}}}, r"offered tools \(none\)"),
        ({"tool_choice": "required"}, "no tool is offered"),
        ({"tools": {"a": 1}}, "'tools' must be a list of objects"),
        ({"promptools": {"modus": "x"}}, "unknown option 'modus'"),
        (
            {"promptools": {"mode": "x"}},
            "promptools.mode must be one of .*, or null, not .x.",
        ),
        ({"promptools": {"mode": 3}}, "not 3"),
        ({"promptools": {"corrections": -1}}, "a whole number, 0 or more"),
        ({"promptools": {"corrections": True}}, "a whole number"),
        ({"promptools": {"trace": 1}}, "true or false"),
        ({"promptools": {"strictness": None}}, "must be one of 'strict'"),
        ({"promptools": {"provider": 1}}, "a string, or null"),
        ({"promptools": []}, "an object of options"),
        ({"promptools": {"namespaces": {"a": 1}}}, "promptools.namespaces must be an object of strings, not"),
    ],
)
def test_what_cannot_be_met_is_the_callers_fault(body, words):
    with pytest.raises(UsageError, match=words):
        ask(**body)


@pytest.mark.parametrize("choice", [{"type": "function", "function": {"name": "z"}}, {"name": "z"}, "bogus"])
@pytest.mark.parametrize("honored", [("auto",), ("auto", "none"), ("auto", "none", "required")])
def test_a_choice_that_cannot_be_met_is_left_out_where_the_server_ignores_it(choice, honored):
    """Ollama ignores every value, llama.cpp every object; LM Studio refuses both."""
    server = Profile(tool_choice=frozenset(honored))
    body = {"messages": [], "tools": [A], "tool_choice": choice}
    if "required" in honored or (choice == "bogus" and "none" in honored):
        with pytest.raises(UsageError, match="tool_choice"):
            parse_request(body, server)
        return
    read = parse_request(body, server)
    assert (read.choice.kind, read.offered.names) == ("auto", ("a",))
    assert [note.partition(": tool_choice")[0] for note in read.notes] == ["left out, as the server would ignore it"]


@pytest.mark.parametrize("odd", ["a", None, 5, [], {}, tool(""), tool(None), {"function": "a"}, {"type": "function"}])
def test_what_is_not_a_tool_goes_on_to_the_server(odd):
    read = ask(tools=[A, odd, B])
    assert (read.tools.names, read.other_tools) == (("a", "b"), (odd,))
    assert read.notes == ("tools[1] is not a function with a name, so its calls cannot be recognized",)


def test_of_tools_with_one_name_the_last_one_counts_and_all_go_on():
    other = tool("a", properties={"n": {"type": "integer"}})
    read = ask(tools=[A, B, other])
    assert (read.tools.names, read.other_tools) == (("b", "a"), (A,))
    assert read.tools.keys("a") == {"n"}
    assert read.notes == ("the tool 'a' is offered more than once: its calls are checked by the last of them",)


def test_tools_and_functions_together_are_tools():
    read = ask(tools=[A], functions=[B["function"]])
    assert (read.tools.names, read.legacy, read.parallel_calls) == (("a",), False, True)
    assert read.notes == ("'functions' was left out: it is the old form of 'tools'",)


@pytest.mark.parametrize("none", [None, [], {}, "", 0, False])
def test_no_tools_are_no_tools_however_they_are_written(none):
    assert ask(tools=none).tools.names == ()


def test_a_tool_of_another_type_is_not_an_oddity():
    search = {"type": "web_search"}
    assert (ask(tools=[A, search]).other_tools, ask(tools=[A, search]).notes) == ((search,), ())


def test_marks_of_the_config_that_do_not_fit_a_tool_are_left_alone():
    marks = {"a": {"dangerous": True, "aliases": {"town": "city", "b": "a"}}}
    read = parse_request({"messages": [], "tools": [tool("a", properties={"a": {}, "b": {}})]}, Profile(), marks=marks)
    assert (read.tools[0].dangerous, read.tools[0].aliases) == (True, {})


def test_every_option_may_be_set_for_one_request():
    values = {
        "mode": "native", "provider": "p", "dialect": "hermes", "strictness": "lenient", "rescue": True, "hold": "all",
        "arguments": "live", "corrections": 0, "trace": True, "escape": False, "on_malformed": "call",
        "tools_in": "system", "thoughts": "turn", "order": "commentary-first", "prefill": "none", "harmony_react": True,
        "date": "2026-11-21", "accept": ("hermes", "json"), "heartbeat": 0.5,
        "namespaces": {"container": "Runs commands."}, "undeclared": "call", "on_repeat": "answer", "repeats": 3,
        "heal_format": False, "agent": True, "family": "gpt-oss", "written": {"1": "<|channel|>final<|message|>Yes."},
        "last_prompt": {"tokens": 10, "bytes": 40},
    }  # fmt: skip
    assert set(values) == set(OPTIONS)
    assert ask(promptools=values).options == Options(**values)
    assert Options(hold="all").override({"trace": True}) == Options(hold="all", trace=True)
    assert Options(mode="prompt").override({"mode": None}).mode is None


@pytest.mark.parametrize(
    ("options", "most"), [({}, 1), ({"harmony_react": True}, 5), ({"harmony_react": True, "corrections": 2}, 2)]
)
def test_how_often_it_may_be_mended(options, most):
    assert ask(promptools=options).options.max_corrections == most


def test_the_old_form_is_understood():
    read = ask(functions=[A["function"], B["function"]], function_call={"name": "a"})
    assert (read.legacy, read.parallel_calls, read.choice) == (True, False, ToolChoice("named", "a"))
    assert read.offered.names == ("a",)
    assert ask(functions=[A["function"]], function_call="none").choice.kind == "none"


def test_tools_of_other_types_stand_aside():
    search = {"type": "web_search"}
    read = ask(tools=[search, A], tool_choice="required")
    assert (read.other_tools, read.tools.names) == ((search,), ("a",))
    assert ask(tools=[search], tool_choice="required").other_tools == (search,)


def test_marks_come_from_the_config_and_the_dict():
    marked = {**A, "x-promptools": {"infer": False}}
    read = parse_request(
        {"messages": [], "tools": [marked, B]},
        Profile(),
        marks={"b": {"dangerous": True}, "elsewhere": {"infer": True}},
    )
    assert read.tools.get("b").dangerous
    assert read.tools.get("a").infer is False
    assert read.offered is read.tools


@pytest.mark.parametrize(
    ("n", "heeded", "wanted", "sends"), [(None, True, 1, 1), (3, True, 3, 1), (3, False, 3, 3), ("x", True, 1, 1)]
)
def test_n(n, heeded, wanted, sends):
    read = parse_request({"messages": [], "n": n}, Profile(n=heeded))
    assert (read.n, read.request_count) == (wanted, sends)


@pytest.mark.parametrize("role", [["tool"], {}, None, 5])
def test_a_role_that_is_none_has_nothing_to_do_with_tools(role):
    assert not involves_tools({"messages": [{"role": role, "content": "x"}]})


def test_n_is_bounded():
    assert ask(n=128).n == 128
    with pytest.raises(UsageError, match="'n' is 1000000"):
        ask(n=1_000_000)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (None, "'messages' must be a list of objects, not None"),
        ("hi", "'messages' must be a list of objects, not 'hi'"),
        ([{"role": "user", "content": "hi"}, None], r"messages\[1\] must be an object with .* not None"),
    ],
)
def test_messages_that_are_none_are_refused(messages, said):
    with pytest.raises(UsageError, match=said):
        ask(tools=[A], messages=messages)


def test_small_wishes():
    assert ask(stream=True, stream_options={"include_usage": True}).include_usage
    assert not ask(stream=True).include_usage
    assert ask(response_format={"type": "json_object"}).json_answer
    assert not ask(response_format={"type": "text"}).json_answer
    assert not ask(tools=[A], parallel_tool_calls=False).parallel_calls
    assert ask(tools=[A]).parallel_calls


def test_corrections_follow_the_messages():
    one, two = {"role": "user", "content": "1"}, {"role": "user", "content": "2"}
    read = ask().with_feedback((one,)).with_feedback((two,))
    assert read.messages == [{"role": "user", "content": "hi"}, one, two]


@pytest.mark.parametrize(
    ("body", "concerned"),
    [
        ({"messages": [{"role": "user", "content": "hi"}]}, False),
        ({"tools": []}, False),
        ({"tools": [A]}, True),
        ({"functions": [A]}, True),
        ({"messages": [{"role": "tool", "content": "x"}]}, True),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, True),
        ({"messages": [{"role": "assistant", "tool_calls": []}, "junk"]}, False),
        ("junk", False),
    ],
)
def test_which_requests_concern_tools(body, concerned):
    assert involves_tools(body) is concerned


def test_the_same_tools_are_prepared_once():
    first, second = (parse_request({"messages": [], "tools": [tool("remembered")]}, Profile()) for _ in range(2))
    other = parse_request({"messages": [], "tools": [tool("remembered_otherwise")]}, Profile())
    assert first.tools is second.tools
    assert other.tools.names == ("remembered_otherwise",)


def test_what_is_remembered_of_tools_says_which_key_they_were_under():
    odd = [{"name": ""}]
    notes = [parse_request({"messages": [], key: odd}, Profile()).notes for key in ("tools", "functions") * 2]
    assert notes[0] == notes[2] == ("tools[0] is not a function with a name, so its calls cannot be recognized",)
    assert notes[1] == notes[3] == ("functions[0] is not a function with a name, so its calls cannot be recognized",)


def test_tools_with_a_lone_surrogate_are_taken():
    odd = tool("lone")
    odd["function"]["description"] = "\ud800"
    assert parse_request({"messages": [], "tools": [odd]}, Profile()).tools.names == ("lone",)
