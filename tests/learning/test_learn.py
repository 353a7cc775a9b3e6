"""A dialect is learned from a template, or an error says why not; never one that reads or writes something else."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from functools import cache

import pytest
from casebook import HERE, ROWS_FOLDERS, SETS, rows, tools_of
from invented_templates import CALLS, invented_template

from promptools import UsageError, dialects, parse
from promptools.dialects.table import parse_table
from promptools.learning import Learned, Renderer, learn
from promptools.modes.jinja_template import jinja_renderer
from promptools.types import Call, Result

TOKENS = {"bos_token": "<s>"}
TOOL = {
    "type": "function",
    "function": {
        "name": "book",
        "parameters": {
            "type": "object",
            "properties": {"what": {"type": "string"}, "seats": {"type": "array"}, "now": {"type": "boolean"}},
        },
    },
}
ARGUMENTS = {"what": "a table\nfor two", "seats": ["window", "door"], "now": True}


BARE = (("<|py|>[", "["), ("]<|/py|>", "]"))
"""What makes the form `python` a list without markers."""
IN_TOKENS = (
    (
        "call.name + put(call.arguments) + '<|said|>' }}",
        (
            "call.name + '{' }}{%- for key, value in call.arguments.items() %}"
            "{{- key + ':<escape>' + VALUE + '<escape>' }}{{- ',' if not loop.last }}{%- endfor %}{{- '}<|said|>' }}"
        ),
    ),
)
"""What makes the form `braces` one with tokens around all values."""
HEADER = ("'<act>\\n<fn='", "'<|to|>' + NAME + '<|with|><act>\\n<fn='")
"""What gives the calls of a form of tags a header."""


def changed(form: str, *changes: tuple[str, str]) -> Renderer:
    """Return what renders the template of a form with other texts in it."""
    template = invented_template(form)
    for old, new in changes:
        assert template.count(old) == 1
        template = template.replace(old, new)
    return jinja_renderer(template, special_tokens=TOKENS)


@cache
def learned(form: str) -> Learned:
    return learn(jinja_renderer(invented_template(form), special_tokens=TOKENS), name="acme")


@pytest.mark.parametrize("form", CALLS)
def test_a_format_that_nobody_wrote_down_is_learned(form):
    outcome = learned(form)
    render = jinja_renderer(invented_template(form), special_tokens=TOKENS)
    calls = [{"id": "abc123xyz", "type": "function", "function": {"name": "book", "arguments": ARGUMENTS}}]
    asked = [{"role": "user", "content": "Book it."}]
    written = render([*asked, {"role": "assistant", "content": "", "tool_calls": calls}], [TOOL])
    text = written.removeprefix(render(asked, [TOOL], add_generation_prompt=True))
    with dialects.using(outcome.given):
        reply = parse(text, [TOOL], expect="acme")
    assert [(call.name, call.arguments, call.dialect) for call in reply.calls] == [("book", ARGUMENTS, "acme")]
    assert reply.content == ""
    ours = outcome.dialect().render_calls([Call("abc123xyz", "book", ARGUMENTS, json.dumps(ARGUMENTS))])
    assert "".join(ours.split()) == "".join(text.removesuffix("<%%end%%>").split())


def test_nothing_else_is_read_otherwise_where_they_are_known():
    """Prose that looks like calls, and a case of each family, with all of the learned tables beside the others."""
    tables = [
        replace(learned(form).given, text=learned(form).toml.replace('"acme"', f'"acme{number}"', 1))
        for number, form in enumerate(CALLS)
    ]
    prose = [
        (row["text"], SETS["all"], row.get("options", {}))
        for path in sorted((HERE / "corpus" / "negative").glob("*.toml"))
        for row in tomllib.loads(path.read_text("utf-8"))["text"][::7]
    ]
    families = {row.table: row for row in rows(*ROWS_FOLDERS)}.values()
    texts = [*prose, *((row.text, tools_of(row.tools), row.options) for row in families)]
    assert len(texts) > 150
    before = [parse(text, tools, **options).to_dict() for text, tools, options in texts]
    with dialects.using(*tables):
        assert [parse(text, tools, **options).to_dict() for text, tools, options in texts] == before


@pytest.mark.parametrize("form", ["json: a list", "named: in a wrapper, with an id", "tags: an attribute", "key_value"])
def test_a_server_that_renders_prompts_alone_is_enough(form):
    """As llama.cpp and Ollama: what the assistant said last would be the beginning of the reply."""
    render = jinja_renderer(invented_template(form), special_tokens=TOKENS)

    def ask(messages, tools, **options):
        if messages[-1]["role"] == "assistant" or not options["add_generation_prompt"]:
            raise UsageError("no prompt")
        return render(messages, tools, **options)

    known = {key: value for key, value in learned(form).table.items() if key != "end_tokens"}
    assert learn(ask, name="acme").table == known


def test_a_template_that_wants_an_answer_before_the_user_speaks_again():
    """As Mistral's: calls are no turn of their own."""
    render = jinja_renderer(invented_template("json: a list"), special_tokens=TOKENS)

    def ask(messages, tools, **options):
        turns = [message["role"] for message in messages if not message.get("tool_calls")]
        if messages[-1]["role"] != "user" or "useruser" in "".join(turns):
            raise UsageError("roles must alternate")
        return render(messages, tools, **options)

    assert learn(ask, name="acme").table["openers"] == {"<|blip|>": "<|blop|>"}


def test_the_beginning_of_a_turn_is_no_part_of_a_call():
    """As DeepSeek R1's: where the content is a text, even an empty one, the calls are followed by a turn for it."""
    calls = "{{- ']<|blop|>' }}"
    again = "{{- '<%%end%%><%%me%%>' if message.content is not none }}"
    template = invented_template("json: a list").replace(calls, calls + again)
    assert template.count(again) == 1
    outcome = learn(jinja_renderer(template, special_tokens=TOKENS), name="acme")
    assert outcome.table["openers"] == {"<|blip|>": "<|blop|>"}


def test_arguments_as_text_are_not_a_way_out():
    """As Kimi K3's: what is written for a text is neat, and not what servers, which give objects, let a model see."""
    calls = "call.arguments | tojson"
    template = invented_template("json: a list")
    assert calls in template
    odd = "(call.arguments if call.arguments is string else call.arguments | dictsort | tojson)"
    with pytest.raises(UsageError, match="no table has the form of"):
        learn(jinja_renderer(template.replace(calls, odd), special_tokens=TOKENS), name="acme")


def test_text_is_tried_where_objects_are_printed():
    template = invented_template("json: a list").replace("call.arguments | tojson", "call.arguments | string")
    outcome = learn(jinja_renderer(template, special_tokens=TOKENS), name="acme")
    assert outcome.table["openers"] == {"<|blip|>": "<|blop|>"}


def test_what_would_be_written_otherwise_is_refused():
    """A truth value as Python prints it is read without a repair, and no table of keys and values writes it."""
    template = invented_template("key_value").replace("value | tojson", "value | string")
    with pytest.raises(UsageError, match=r"it writes .*true.*, and the template .*True"):
        learn(jinja_renderer(template, special_tokens=TOKENS), name="acme")


def test_it_is_registered_nowhere():
    known = dialects.names()
    learned("named")
    assert dialects.names() == known


def test_the_toml_is_the_table():
    outcome = learned("json: a list")
    assert (
        parse_table(outcome.given).render_calls([Call("1", "f", {}, "{}")])
        == '<|blip|>[{"tool": "f", "with": {}}]<|blop|>'
    )
    assert 'name_key = "tool"\narguments_key = "with"\n' in outcome.toml
    assert '[openers]\n"<|blip|>" = "<|blop|>"\n' in outcome.toml


def test_what_was_verified_is_told():
    outcome = learned("json: an object")
    read, written = outcome.checks[:2]
    assert int(read.split()[0]) >= 30
    assert int(written.split()[0]) >= 30


def test_a_list_without_markers_is_read_only_if_it_is_asked_for():
    outcome = learn(changed("python", *BARE), name="acme")
    assert (outcome.table["openers"], outcome.table["tier"]) == ({"": ""}, "B")
    assert any("it is read only if it is requested" in note for note in outcome.notes)
    text = '[book(what="a table", now=true)]'
    with dialects.using(outcome.given):
        replies = parse(text, [TOOL], expect="acme"), parse(text, [TOOL])
    assert [call.dialect for reply in replies for call in reply.calls] == ["acme", "pythonic"]


def test_values_as_python_prints_them():
    outcome = learn(changed("python", ("value | tojson", "'%r' | format(value)")), name="acme")
    assert outcome.table["values"] == "python"
    written = outcome.dialect().render_calls([Call("1", "book", ARGUMENTS, json.dumps(ARGUMENTS))])
    assert written == r"<|py|>[book(what='a table\nfor two', seats=['window', 'door'], now=True)]<|/py|>"


@pytest.mark.parametrize(("value", "values"), [("value | string", "python"), ("(value | tojson)", "json")])
def test_tokens_around_values_of_all_types(value, values):
    if values == "json":
        value = f"(value if value is string else {value})"
    outcome = learn(changed("braces", *IN_TOKENS, ("VALUE", value)), name="acme")
    assert outcome.table["values"] == values
    with dialects.using(outcome.given):
        reply = parse(outcome.dialect().render_calls([Call("1", "book", ARGUMENTS, "")]), [TOOL], expect="acme")
    assert [call.arguments for call in reply.calls] == [ARGUMENTS]


def test_a_header_that_names_the_tool_too():
    """As Muse Glimmer's: each call is a message to its tool."""
    between = ("'\\n' if not loop.last", "'<%%end%%><%%me%%>' if not loop.last")
    outcome = learn(changed("tags: an equals sign", HEADER, ("NAME", "call.name"), between), name="acme")
    assert (outcome.table["header"], outcome.table["separator"]) == ("<|to|>{name}<|with|>", "<%%end%%><%%me%%>")
    calls = [Call(name, name, {"what": name}, "") for name in ("book", "cook")]
    text = outcome.dialect().render_calls(calls)
    assert text.startswith("<|to|>book<|with|><act>\n<fn=book>")
    with dialects.using(outcome.given):
        reply = parse(text, expect="acme")
    assert [(call.name, call.arguments) for call in reply.calls] == [(call.name, call.arguments) for call in calls]
    assert reply.content == ""


BACK = "'<%%back%%>' + message.content"


def test_a_result_that_names_its_tool_and_call():
    name, call = "message.name", "message.tool_call_id"
    back = f"'<back name=\"' + {name} + '\" to=\"' + {call} + '\">' + message.content + '</back>'"
    outcome = learn(changed("json: a list", (BACK, back)), name="acme")
    assert outcome.table["result_openers"] == outcome.table["stop"] == ['<back name="']
    assert outcome.dialect().render_results([Result("1", "book", "done")]) == '<back name="book" to="1">done</back>'


@pytest.mark.parametrize(
    "back",
    [
        "'<|' + message.name + '|>' + message.content + '<|/back|>'",  # the calls begin with `<|`, too
        "'<' + message.name + '>' + message.content + '</back>'",
        "'<|blip|' + message.name + '|>' + message.content + '<|/back|>'",
    ],
)
def test_a_marker_that_calls_may_hold_is_not_that_of_results(back):
    """A server would stop at it."""
    changes = [(BACK, back), ("<|blip|>", "<|blip|go|>")]
    table = learn(changed("json: a list", *changes), name="acme").table
    assert table["end_tokens"] == ["<%%end%%>"]
    assert not table.keys() & {"result_openers", "result", "stop"}


@pytest.mark.parametrize(
    ("form", "changes"),
    [
        ("python", [("value | tojson", "'%s' | format(value)")]),
        # Llama 3.2 and ToolACE
        ("python", [*BARE, ("value | tojson", "'%s' | format(value)")]),
        # Llama 4: with quotes around all values, and none escaped
        ("python", [*BARE, ("value | tojson", "'\"%s\"' | format(value)")]),
        # LFM2.5: a text may hold the quote around it, or what looks like an escape
        ("python", [("value | tojson", '("\'" + value + "\'" if value is string else value | string)')]),
        ("python", [("<|py|>[", ""), ("]<|/py|>", "")]),
        ("braces", [*IN_TOKENS, ("VALUE", "(value | string | replace(\"'\", ''))")]),
        ("tags: an equals sign", [HEADER, ("NAME", "call.name | upper")]),
    ],
)
def test_what_cannot_be_recovered_is_refused(form, changes):
    with pytest.raises(UsageError, match="No table of 'acme' could be learned"):
        learn(changed(form, *changes), name="acme")


def test_a_template_without_calls_is_refused():
    with pytest.raises(UsageError, match="the calls cannot be found in what it renders"):
        learn(lambda messages, tools, **options: "".join(message["role"] for message in messages), name="acme")


def test_a_template_that_renders_nothing_is_refused():
    def refuse(messages, tools, **options):
        raise ValueError("no such model")

    with pytest.raises(UsageError, match="renders no conversation: no such model"):
        learn(refuse, name="acme")
