"""What a model's config says about the parsing of its replies is tried first, and the template decides."""

import pytest
from invented_templates import invented_template

from promptools.learning import learn
from promptools.learning.declared_parsing import MAX_PATTERN, read_declaration
from promptools.modes.jinja_template import jinja_renderer

TOKENS = {"bos_token": "<s>"}
NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
KEYED = {"type": "function", "function": "{content}"}


def field(**keys):
    """A `response_template` whose calls are found so."""
    return {
        "version": 1,
        "start_anchor": "<%%me%%>",
        "fields": {"content": {}, "tool_calls": {"repeats": True, **keys}},
    }


def pairs(pattern):
    return {"content": "xml-inline", "content_args": {"tag_pattern": pattern}, "transform": NAMED}


TEMPLATES = {
    "json: an object": field(open_pattern=r"\s*<zork>", close="</zork>", content="json", transform=KEYED),
    "json: a list": field(
        open="<|blip|>",
        close=["<|blop|>", "<%%end%%>"],
        content="json",
        transform={"function": {"name": "{tool}", "arguments": "{with}"}},
        transform_each=True,
    ),
    "named": field(
        open_pattern=r"<\|to\|>(?P<tool>[\w-]+)<\|with\|>",
        close="<|sent|>",
        content="json",
        transform={"function": {"name": "{tool}", "arguments": "{content}"}},
    ),
    "tags: an equals sign": field(
        open_pattern=r"\s*<act>\s*<fn=(?P<name>[^>\n]+)>\s*",
        close_pattern=r"\s*</fn>\s*</act>",
        **pairs(r"<arg=(?P<key>[^>\n]+)>\n(?P<value>.*?)\n</arg>"),
    ),
    "key_value": field(
        open_pattern=r"<do_it>(?P<name>[^\n]+)\n",
        close="</do_it>",
        **pairs(r"<k>(?P<key>.*?)</k>\s*<v>(?P<value>.*?)</v>"),
    ),
    "braces": field(
        open_pattern=r"<\|say\|>call:(?P<name>\w+)",
        close="<|said|>",
        content="json",
        content_args={"unquoted_keys": True, "string_delims": [["<escape>", "<escape>"]]},
        transform=NAMED,
    ),
    "python": field(open="<|py|>", close="<|/py|>", content="python-call-list"),
}
"""A `response_template` for some of the invented forms."""


def schema(pattern, **items):
    return {"type": "object", "properties": {"tool_calls": {"x-regex-iterator": pattern, "items": items}}}


def call_schema(**arguments):
    function = {"type": "object", "properties": {"name": {"type": "string"}, "arguments": arguments}}
    return {"type": "object", "properties": {"type": {"const": "function"}, "function": function}}


SCHEMAS = {
    "json: an object": schema(
        r"<zork>\s*(.+?)\s*</zork>", **{"x-parser": "json", "x-parser-args": {"transform": "{function: @}"}}
    ),
    "named": schema(
        r"<\|to\|>(?P<name>.+?)<\|with\|>(?P<arguments>.+?)<\|sent\|>", **call_schema(**{"x-parser": "json"})
    ),
    "key_value": schema(
        r"<do_it>(?P<name>\w+)\n(?P<arguments>.*?)</do_it>",
        **call_schema(**{"x-regex-key-value": r"<k>(?P<key>.*?)</k>\n<v>(?P<value>.*?)</v>"}),
    ),
}
"""A `response_schema` for some of the invented forms."""


def renderer(form):
    return jinja_renderer(invented_template(form), special_tokens=TOKENS)


@pytest.mark.parametrize(("key", "form"), [
    *(("response_template", form) for form in TEMPLATES),
    *(("response_schema", form) for form in SCHEMAS),
])  # fmt: skip
def test_a_declaration_that_is_true_is_the_table(key, form):
    declared = (TEMPLATES if key == "response_template" else SCHEMAS)[form]
    outcome = learn(renderer(form), name="acme", config={key: declared})
    assert outcome.checks[-1] == f"calls are written as the config's {key} says"
    assert outcome.table == learn(renderer(form), name="acme").table, "with the white space of the template"


def test_a_declaration_that_is_false_is_a_note():
    false = field(open="<zork>", close="</zirk>", content="json", transform=KEYED)
    outcome = learn(renderer("json: an object"), name="acme", config={"response_template": false})
    assert outcome.table["openers"] == {"<zork>": "</zork>"}
    (note,) = outcome.notes
    assert note.startswith("the config's response_template is not used, and the template alone decides: ")


def test_the_newer_key_is_the_one_that_is_read():
    config = {"response_template": TEMPLATES["named"], "response_schema": SCHEMAS["named"]}
    assert read_declaration(config).key == "response_template"


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ([], "it is of a version that is not known"),
        ({"version": 2}, "it is of a version that is not known"),
        ({"fields": {"content": {}}}, "it has no field 'tool_calls'"),
        (field(close="</zork>", content="json", transform=KEYED), "it does not say how calls begin"),
        (field(open="<zork>", content="kv-lines", transform=KEYED), "no kind of table reads the content 'kv-lines'"),
        (field(open="<zork>", content="json"), "it does not say where a call has its name"),
        (
            field(open="<zork>", content="json", transform=NAMED),
            "the name of a call is in a place that no table can express",
        ),
        (
            field(open_pattern="<(?:zork|zark)>", content="json", transform=KEYED),
            "a pattern matches more than one text",
        ),
        (field(open_pattern="(a+)+" * 99, content="json", transform=KEYED), "a group without a name"),
        (field(open_pattern="(?:a|b)+", content="json", transform=KEYED), "a pattern matches more than one text"),
        (field(open_pattern="(?:ab)+", content="json", transform=KEYED), "a pattern repeats a text"),
        (field(open_pattern="(?:" * (MAX_PATTERN // 3), content="json", transform=KEYED), "a group without an end"),
        (field(open_pattern="x" * (MAX_PATTERN + 1), content="json", transform=KEYED), "a pattern is too long"),
    ],
)
def test_what_no_table_says_is_a_note(declared, problem):
    declaration = read_declaration({"response_template": declared})
    assert (declaration.tables, problem in declaration.problem) == ((), True)


def test_without_a_declaration_there_is_no_word_of_one():
    outcome = learn(renderer("json: an object"), name="acme", config={"chat_template": "x"})
    assert not [line for line in (*outcome.checks, *outcome.notes) if "config" in line]
