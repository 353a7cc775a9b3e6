"""Tools whose calls are free text, such as gpt-oss' own `python`: declared, called, and written back."""

import json

import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools import StreamParser, Tools, UsageError, parse
from promptools.dialects.calls.json_body import read_arguments
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.harmony.conversation import Options, convert
from promptools.harmony.recipients import RecipientNames
from promptools.harmony.renderer import content_text, render_messages
from promptools.modes.structured_calls import NATIVE_EVIDENCE

CODE = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
TIMED = {"type": "object", "properties": {"code": {"type": "string"}, "timeout": {"type": "integer"}}}
ABOUT = "Use this tool to execute Python code.\n\nIt is stateless."
MARKS = {"python": {"free_text": "code", "names": ["ipython"]}}


def tools(parameters=CODE, name="python", **more):
    given = [{"name": name, "description": ABOUT, "parameters": parameters}, *more.get("others", ())]
    return Tools(given, marks={name: {"free_text": "code"}} | more.get("marks", {}))


PYTHON = tools()
BODIES = [
    "print(1)",
    "",
    "\n  x = 1\n\n",
    "[1, 2]",
    '"text"',
    "1",
    "null",
    "{",
    "{'code': 'x'}",
    '{"other": 1}',
    '{"code": "x"}.get("code")',
    "<function_call>x</function_call>",
    "print('<|start|>')",
    '{"a": 1}{"a": 1}',
]


def reply(body, header="<|channel|>analysis to=python code<|message|>", end="<|call|>"):
    return f"<|channel|>analysis<|message|>Run it.<|end|><|start|>assistant{header}{body}{end}"


def read(text, given=PYTHON, finish_reason="stop"):
    whole = parse(text, given, expect="harmony", finish_reason=finish_reason)
    parser = StreamParser(given, expect="harmony")
    for letter in text:
        parser.feed(letter)
    parser.close(finish_reason)
    assert [(call.name, call.arguments) for call in parser.reply.calls] == [
        (call.name, call.arguments) for call in whole.calls
    ]
    return whole


@pytest.mark.parametrize("body", [body for body in BODIES if "<|" not in body])
def test_the_body_is_the_parameter_verbatim(body):
    (call,) = read(reply(body)).calls
    assert (call.name, call.arguments, call.fixes) == ("python", {"code": body}, ())
    assert json.loads(call.arguments_json) == {"code": body}


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=python<|message|>",
        " to=python<|channel|>analysis code<|message|>",
        "<|channel|>analysis to=functions.python code<|message|>",
        "<|channel|>commentary to=functions.python <|constrain|>json<|message|>",
    ],
)
@pytest.mark.parametrize(
    ("body", "arguments"), [("print(1)", {"code": "print(1)"}), ('{"code": "a\\nb"}', {"code": "a\nb"})]
)
def test_wherever_the_header_has_it(header, body, arguments):
    (call,) = read(reply(body, header)).calls
    assert (call.name, call.arguments, call.fixes) == ("python", arguments, ())


def test_arguments_as_json():
    both = tools(TIMED)
    (call,) = read(reply(' {"code": "print(1)", "timeout": 5}\n'), both).calls
    assert (call.arguments, call.fixes) == ({"code": "print(1)", "timeout": 5}, ())
    for body in ('{"code": "a\nb"}', '{"code": "a\nb"'):
        (call,) = read(reply(body), both).calls
        assert (call.arguments, bool(call.fixes)) == ({"code": "a\nb"}, True)
    (call,) = read(reply('{"timeout": 5}'), both).calls
    assert call.arguments == {"code": '{"timeout": 5}'}


def test_by_another_name():
    (call,) = read(reply("print(1)", "<|channel|>analysis to=ipython code<|message|>"), tools(marks=MARKS)).calls
    assert (call.name, call.arguments) == ("python", {"code": "print(1)"})
    assert [(fix.kind, fix.detail) for fix in call.fixes] == [("name", "'ipython' to 'python'")]


@pytest.mark.parametrize("finish_reason", ["length", None])
@pytest.mark.parametrize("body", ["print(1", '{"code": "a"}'])
def test_one_that_was_cut_is_not_a_call(body, finish_reason):
    cut = read(reply(body, end=""), finish_reason=finish_reason)
    assert (cut.calls, [failed.reason for failed in cut.malformed]) == ((), ["truncated"])
    assert read(reply("print(1)", end="")).calls[0].arguments == {"code": "print(1)"}


def test_without_the_mark_it_is_a_function():
    plain = Tools([{"name": "python", "parameters": CODE}])
    (call,) = read(reply("print(1)"), plain).calls
    assert [fix.kind for fix in call.fixes] == ["unwrap"]
    recipient = convert([], plain).messages[1].content.functions[0].name
    assert recipient == "python"


def test_elsewhere_text_in_place_of_arguments_is_the_parameter_too():
    both = tools(TIMED)
    options = ParseOptions(both, "balanced", None, json_answer=False, anchors=both.all_keys)
    (call,) = read_arguments("python", "print(1)", options, NATIVE_EVIDENCE, ended=True).calls
    assert call.arguments == {"code": "print(1)"}
    assert [fix.detail for fix in call.fixes] == ["the arguments were a bare string: taken as 'code'"]


# --- written


def developer(given, **options):
    return content_text(convert([], given, options=Options(**options)).messages[1])


def test_it_is_a_namespace_of_its_own():
    weather = {"name": "get_weather", "parameters": CODE}
    assert developer(tools(others=[weather])) == (
        "# Tools\n\n## functions\n\nnamespace functions {\n\ntype get_weather = (_: {\ncode: string,\n}) => any;\n\n"
        f"}} // namespace functions\n\n## python\n\n{ABOUT}"
    )
    system = convert([], PYTHON, options=Options(tools_in="system")).messages[0]
    assert f"# Tools\n\n## python\n\n{ABOUT}\n\n# Valid channels" in content_text(system)


def test_in_a_namespace_it_is_a_function_of_a_string():
    patch = tools(name="repo_browser.apply_patch", marks={})
    assert "type apply_patch = (_: string) => any;" in developer(patch)
    header = "<|channel|>analysis to=repo_browser.apply_patch code<|message|>"
    (call,) = read(reply("*** Begin Patch\n*** End Patch\n", header), patch).calls
    assert call.arguments == {"code": "*** Begin Patch\n*** End Patch\n"}


def conversation(arguments, name="python"):
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [asked, {"role": "tool", "tool_call_id": "c", "content": "1"}]


def test_the_history_is_as_the_model_wrote_it():
    said = convert(conversation('{"code": "print(1)\\n"}'), PYTHON).messages[2:]
    assert render_messages(said, reply_role=None) == (
        "<|start|>assistant to=python<|channel|>analysis code<|message|>print(1)\n<|call|>"
        "<|start|>python to=assistant<|channel|>analysis<|message|>1<|end|>"
    )


@pytest.mark.parametrize("arguments", ['{"code": "x", "timeout": 5}', "{}", "print(1)", '{"code": "{}"}', "[1]"])
def test_what_is_not_only_text_is_written_as_it_is(arguments):
    call = convert(conversation(arguments), PYTHON).messages[2]
    assert call.content == arguments


@given(body=st.sampled_from(BODIES) | st.text(st.sampled_from('{}[]"\\ncode: 1x\n<|>'), max_size=30))
def test_what_is_written_is_read_back(body):
    past = convert(conversation(json.dumps({"code": body})), PYTHON).messages[2:3]
    text = render_messages(past, reply_role=None, escape=str).removeprefix("<|start|>assistant")
    if text.count("<|") > 3:
        return  # control tokens in text are escaped by the mode
    (call,) = parse(text, PYTHON, expect="harmony", finish_reason="stop").calls
    assert call.arguments == {"code": body}


def test_recipients():
    names = RecipientNames(["python", "my tool", "my_tool", "a.b", "user", "functions"], free_text={
        "python", "my tool", "my_tool", "a.b", "user", "functions"})  # fmt: skip
    assert [names.address_of(name).recipient for name in ["python", "my tool", "my_tool", "a.b", "user"]] == [
        "python", "my_tool_2", "my_tool", "a.b", "functions.user"]  # fmt: skip
    assert names.address_of("functions").recipient == "functions.functions"


@pytest.mark.parametrize("key", ["nothing", "timeout"])
def test_a_parameter_that_takes_no_text_is_refused(key):
    with pytest.raises(UsageError, match="the mark 'free_text' is"):
        Tools([{"name": "python", "parameters": TIMED}], marks={"python": {"free_text": key}})
    unseen = Tools([{"name": "python", "parameters": TIMED}]).with_marks({"python": {"free_text": key}})
    assert unseen[0].free_text is None


@pytest.mark.oracle
def test_openai_harmony_declares_it_so():
    harmony, encoding = oracle.library(), oracle.encoding()
    python = harmony.ToolNamespaceConfig(name="python", description=ABOUT, tools=[])
    system = harmony.SystemContent.new().with_tools(python)
    message = harmony.Message.from_role_and_content(harmony.Role.SYSTEM, system)
    ids = encoding.render(message)
    ours = convert([], PYTHON, options=Options(tools_in="system")).messages[:1]
    assert encoding.decode(ids) == render_messages(ours, reply_role=None)
