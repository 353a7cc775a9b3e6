"""A call that is only mentioned is text: in programs, logs, patches and blocks of code, or announced as an example.

Each text is made with the call of every dialect. What stands beside them are texts that look alike, and call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from casebook import bare, feed

from promptools import dialects, parse
from promptools.dialects.sample import CALL, TOOL, sample_text


def before_lines(mark: str) -> Callable[[str], str]:
    return lambda call: "\n".join(mark + line for line in call.split("\n"))


def escaped(call: str, quote: str) -> str:
    return call.replace("\\", "\\\\").replace(quote, f"\\{quote}").replace("\n", "\\n")


INDENTED, TABBED = before_lines("    "), before_lines("\t")
ADDED, REMOVED = before_lines("+"), before_lines("-")

MENTIONED: dict[str, Callable[[str], str]] = {
    "an indented block at the end": lambda call: f"It looks like this:\n\n{INDENTED(call)}",
    "an indented block amid prose": lambda call: f"It looks like this:\n\n{INDENTED(call)}\n\nThat is all.",
    "a block behind tabs": lambda call: f"It looks like this:\n\n{TABBED(call)}",
    "a block behind tabs amid prose": lambda call: f"It looks like this:\n\n{TABBED(call)}\n\nThat is all.",
    "an added line": lambda call: f"The patch:\n\n@@ -1,3 +1,4 @@\n context\n{ADDED(call)}",
    "a removed line": lambda call: f"The patch:\n\n@@ -1,3 +1,4 @@\n context\n{REMOVED(call)}\n+x\n",
    "a line of a patch amid prose": lambda call: f"The patch:\n\n@@ -1 +1 @@\n{ADDED(call)}\n context\n\nThat is it.",
    "a patch of git": lambda call: f"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n{ADDED(call)}",
    "a patch without a header": lambda call: f"I changed this line:\n\n-old\n{ADDED(call)}",
    "a header of a patch": lambda call: f"The patch:\n\n@@ -1,3 +1,4 @@ {call}",
    "a log": lambda call: f"2026-11-01 12:00:00 INFO call: {call}",
    "a log amid prose": lambda call: f"The log:\n2026-11-01T12:00:00.123Z DEBUG said {call}\n2026-11-01T12:00:01Z done",
    "a log with brackets": lambda call: f"[2026-11-01 12:00:00] app.INFO: call {call}",
    "a log of Python": lambda call: f"INFO:root:call: {call}",
    "a log with milliseconds": lambda call: f"12:00:00,123 tool {call}",
    "a log of a system": lambda call: f"Nov 22 12:00:00 host app[123]: {call}",
    "a log with levels in brackets": lambda call: f"The log says:\n[ERROR] could not run {call}",
    "an assertion": lambda call: f"assert parse('{escaped(call, chr(39))}')",
    "an assertion in prose": lambda call: f"The test is:\n\nassert parse('{escaped(call, chr(39))}').calls",
    "an argument in double quotes": lambda call: f'print("{escaped(call, chr(34))}")',
    "an argument in single quotes": lambda call: f"print('{call}')",
    "an argument without quotes": lambda call: f"parse({call})",
    "an assignment": lambda call: f"text = '{escaped(call, chr(39))}'",
    "an assignment of JavaScript": lambda call: f'const text = "{escaped(call, chr(34))}";',
    "an assignment of raw text": lambda call: f"text = r'{call}'",
    "an assignment and more": lambda call: f'text = "{escaped(call, chr(34))}"\ncalls = []',
    "a long string": lambda call: f'text = """{call}"""',
    "a long string on lines of its own": lambda call: f'text = """\n{call}\n"""\nassert parse(text)',
    "a template of JavaScript": lambda call: f"const text = `{call.strip('`')}`;\nlet calls = parse(text);",
    "a template on lines of its own": lambda call: f"const text = `\n{call}\n`;\nmodule.exports = text;",
    "raw text of Go": lambda call: f"var sample = `\n{call}\n`\n",
    "a here-document": lambda call: f"cat > reply.txt <<'EOF'\n{call}\nEOF\nwc reply.txt",
    "a block of YAML": lambda call: f"- name: one\n  text: |\n{INDENTED(call)}\n  calls: 1",
    "a block of YAML at the end": lambda call: f"- name: one\n  text: |\n{INDENTED(call)}",
    "typographic quotes": lambda call: f"The model wrote “{call}” and stopped.",
    "quotes of German": lambda call: f"Es schrieb „{call}“ und war fertig.",
    "a block of HTML": lambda call: f"<h1>Calls</h1>\n<pre><code>{call}</code></pre>\n<p>So it looks.</p>",
    "a block of HTML at the end": lambda call: f'The page:\n\n<pre class="x">\n{call}</pre>',
    "a comment of HTML": lambda call: f"<!-- {call} -->\n\nNothing is seen.",
    "a section of XML": lambda call: f"<doc><![CDATA[{call}]]></doc>",
    "a table": lambda call: f"| format | call |\n| --- | --- |\n| ours | {' '.join(call.split())} |\n",
    "a chat log": lambda call: f"[12:00:01] <bot> {call}\n[12:00:02] <me> nice",
    "a transcript": lambda call: f"User: How is Oslo?\nAssistant: {call}\nTool: rain\nAssistant: It rains.",
    "a transcript at the end": lambda call: f"I tidied it up:\n\nUser: How is Oslo?\n\nAssistant:\n{call}",
    "a transcript in bold": lambda call: f"**User:** How is Oslo?\n\n**Assistant:** {call}\n\n**User:** Thanks.",
    "YAML": lambda call: f"- text: '{call}'\n  calls: 1",
    "quotes in prose": lambda call: f"The model wrote '{call}' and stopped.",
}

ANNOUNCED = (
    "Do not write it like this:", "Never write:", "You should never send:", "Don't do this:", "Please do not use:",
    "Models must not answer like this:", "Avoid writing:", "This is wrong:", "Bad:", "**Wrong:**", "Incorrect format:",
    "It is invalid:", "Instead of this:", "Not like that:", "For example:", "For instance:", "e.g.:", "Example:",
    "Example 2:", "### Example call:", "Example (not executed):", "An example of a call:", "Here is an example:",
    "Here's a short example of the format:", "This is one example:", "As an example:", "For documentation only:",
    "For documentation, I did not run it:", "A call looks like this (I will not make it):",
    "This is what it would be, we did not actually execute it:", "That is wrong, never write this:",
    "I read the page. Never write:",
    "Zum Beispiel:", "Schreib das nicht so:", "Par exemple :", "Ne l'écris pas ainsi :", "Por ejemplo:",
    "No lo escribas así:", "Пример:", "例如：", "不要这样写：", "例えば：",
)  # fmt: skip

MEANT = (
    "I will use the tool:", "Let me call it like this:", "Here is the call:", "For example, I can check Oslo:",
    "I should not guess, so I call the tool:", "The tests were not run:", "I cannot know this without the tool:",
    "Don't worry:", "Never mind:", "I do this for you:", "Here is the example file, I read it:", "It's his.",
    "I'll not do this by hand, I use the tool:", "Let me try this example:", "I use an example city:", "Note:",
    "An example would help, so I look:", "For reference I look it up:", 'He said "hello".', "x = 5", "Error: none.",
    "I will not do it by hand:", "No lo sé:", "Je ne sais pas:", "Ich weiß es nicht:", "不知道，我来查：", "Like this:",
    "Nothing like this has been run before, so:", 'def f():\n    """Doc."""', "It is 12:00:00 now.", "ERROR was told.",
    "Here is an example of the call I will make:", "This is an example of what I'll do:", "I'd say 5\" or so.",
    "I look, I do not guess:", "The user: you. Assistant: me.\n", "Code: <b>x</b>", "| a | b |\n\nI look.",
    "1. I look:", "- so", "Example 2 is next, I call:", "I am not sure. Calling:", "> Never write:\n\nI call:",
)  # fmt: skip


def is_text(text: str, **options: Any) -> None:
    reply = parse(text, [TOOL], **options)
    assert (reply.calls, reply.malformed) == ((), ()), text
    assert reply.content == text.removesuffix("<|call|>"), text  # which ends a turn


@pytest.mark.parametrize("name", dialects.names())
def test_a_call_in_a_program_a_log_or_a_patch_is_text(name: str) -> None:
    call = sample_text(dialects.get(name))
    for form in MENTIONED.values():
        is_text(form(call))
        is_text(form(call), strictness="strict")


@pytest.mark.parametrize("name", dialects.names())
def test_a_fence_behind_words_that_say_that_it_is_none_is_text(name: str) -> None:
    call = sample_text(dialects.get(name))
    for words in ANNOUNCED:
        is_text(f"{words}\n\n```\n{call}\n```")
        is_text(f"{words}\n```xml\n{call}\n```")


BARE = {"llama3_json", "functionary", "pythonic"}
"""Dialects whose calls may do without their special tokens, and are written so here."""
SENTINELS = {
    name
    for name in set(dialects.names()) - BARE
    if dialects.get(name).channels is not None
    or any((head.tier or dialects.get(name).tier) == "S" for head in dialects.get(name).heads)
}


@pytest.mark.parametrize("name", sorted(set(dialects.names()) - SENTINELS))
def test_without_a_fence_too(name: str) -> None:
    for words in ANNOUNCED:
        is_text(f"{words}\n\n{sample_text(dialects.get(name))}")


@pytest.mark.parametrize("name", sorted(SENTINELS))
def test_special_tokens_outside_a_fence_are_the_models_own(name: str) -> None:
    for words in ANNOUNCED:
        assert len(parse(f"{words}\n\n{sample_text(dialects.get(name))}", [TOOL]).calls) == 1, words


@pytest.mark.parametrize("name", dialects.names())
def test_words_that_look_alike_take_no_call_away(name: str) -> None:
    call = sample_text(dialects.get(name))
    for form in ("{}\n{call}", "{}\n\n{call}", "{}\n\n```\n{call}\n```"):
        plain = form.replace("{call}", call)
        usual = len(parse(plain.replace("{}", "I look."), [TOOL]).calls)
        for words in MEANT:
            assert len(parse(plain.replace("{}", words), [TOOL]).calls) == usual, (words, form)


@pytest.mark.parametrize("name", dialects.names())
def test_who_asked_for_a_dialect_gets_its_calls(name: str) -> None:
    call = sample_text(dialects.get(name))
    usual = parse(call, [TOOL], expect=name)
    assert len(usual.calls) == 1
    for words in ("For example:", "Never write:"):
        assert len(parse(f"{words}\n{call}", [TOOL], expect=name).calls) == 1, words


@pytest.mark.parametrize("name", dialects.names())
def test_however_a_mention_is_cut(name: str) -> None:
    call = sample_text(dialects.get(name))
    fenced = (f"{words}\n\n```\n{call}\n```" for words in ANNOUNCED[::8])
    for text in (*(form(call) for form in MENTIONED.values()), *fenced):
        whole = bare(parse(text, [TOOL]))
        assert bare(feed([text[at : at + 3] for at in range(0, len(text), 3)], [TOOL])[1]) == whole, text


# --- block quotes ----------------------------------------------------------------------------------------------------

QUOTED, QUOTED_ITEM = before_lines("> "), before_lines("  > ")
LONG = "words " * 60

BLOCK_QUOTES: dict[str, Callable[[str], str]] = {
    "the whole reply": QUOTED,
    "after words": lambda call: f"You wrote:\n\n{QUOTED(call)}",
    "amid words": lambda call: f"You wrote:\n{QUOTED(call)}\n\nThat is all.",
    "a sentence before the call": lambda call: f"You wrote:\n\n> It said {QUOTED(call)[2:]}",
    "a long line": lambda call: f"> {LONG}{QUOTED(call)[2:]}",
    "a long line after words": lambda call: f"You wrote:\n\n> {LONG}{QUOTED(call)[2:]}\n> and so on.",
    "no space": lambda call: "You wrote:\n" + before_lines(">")(call),
    "a quote in a quote": lambda call: "You wrote:\n\n" + before_lines("> > ")(call),
    "a quote in a list": lambda call: f"- You wrote:\n\n{QUOTED_ITEM(call)}",
    "a list in a quote": lambda call: f"> - {before_lines('>   ')(call)[4:]}",
    "a fence in a quote": lambda call: f"You wrote:\n\n> ```\n{QUOTED(call)}\n> ```",
    "a fence whose quote ends with its first line": lambda call: f"You wrote:\n> ~~~\n{call.strip('~')}\n~~~",
}
STRICTNESS: Iterable[dict[str, Any]] = ({}, {"strictness": "strict"}, {"strictness": "lenient"})


@pytest.mark.parametrize("name", dialects.names())
def test_a_call_in_a_block_quote_is_text(name: str) -> None:
    """Whatever its dialect: a model that quotes writes the special tokens of another one, and its own, as text."""
    call = sample_text(dialects.get(name))
    for form in BLOCK_QUOTES.values():
        for options in (*STRICTNESS, {"expect": name}):
            is_text(form(call), **options)


@pytest.mark.parametrize("name", dialects.names())
def test_however_a_block_quote_is_cut(name: str) -> None:
    call = sample_text(dialects.get(name))
    for form in BLOCK_QUOTES.values():
        text = form(call)
        whole = bare(parse(text, [TOOL]))
        assert bare(feed([text[at : at + 3] for at in range(0, len(text), 3)], [TOOL])[1]) == whole, text


@pytest.mark.parametrize("name", dialects.names())
def test_a_call_after_a_block_quote_is_a_call(name: str) -> None:
    call = sample_text(dialects.get(name))
    usual = len(parse(f"You wrote this.\n\n{call}", [TOOL]).calls)
    for quote in ("> Look it up.", f"> {LONG}", f"> `{call.split(chr(10))[0]}`".replace("```", ""), ">"):
        assert len(parse(f"{quote}\n\n{call}", [TOOL]).calls) == usual, quote


@pytest.mark.parametrize("name", dialects.names())
def test_half_a_call_in_a_block_quote_is_text(name: str) -> None:
    call = sample_text(dialects.get(name)).split("\n")[0]
    for end in range(1, len(call), 5):
        for quote in (f"> {call[:end]}", f"You wrote:\n> {call[:end]}"):
            reply = parse(quote, [TOOL], finish_reason="length")
            assert (reply.calls, reply.malformed) == ((), ()), quote


@pytest.mark.parametrize("name", dialects.names())
def test_a_thought_that_never_ends_calls_nothing_that_it_quotes(name: str) -> None:
    call = sample_text(dialects.get(name))
    for form in BLOCK_QUOTES.values():
        reply = parse(f"<think>{form(call)}", [TOOL])
        assert reply.calls == (), form(call)
    for words in ANNOUNCED[::8]:
        assert parse(f"<think>{words}\n```\n{call}\n```", [TOOL]).calls == (), words


LIST = "1. I call it:\n\n    {}"


def test_what_a_lists_item_holds_is_not_a_block_of_code() -> None:
    call = sample_text(dialects.get("hermes"))
    assert len(parse(LIST.replace("{}", call), [TOOL]).calls) == 1
    assert len(parse(f"    {call}", [TOOL]).calls) == 1
    assert len(parse(f"I call:\n    {call}", [TOOL]).calls) == 1


def test_a_reply_that_is_in_quotes_as_a_whole_calls() -> None:
    call = sample_text(dialects.get("hermes"))
    for quote in ("'", '"', '"""', '"""\n'):
        assert len(parse(f"{quote}{call}", [TOOL]).calls) == 1, quote


def test_a_line_that_is_too_long_to_be_seen_to_its_beginning_is_not_a_log() -> None:
    call = sample_text(dialects.get("hermes"))
    for text in (f"{'x' * 300} 12:00:00,123 {'y' * 240} {call}", f"12:00:00,123 {'y' * 300} {call}"):
        whole = parse(text, [TOOL])
        assert len(whole.calls) == 1
        for size in (1, 13):
            assert bare(feed([text[at : at + size] for at in range(0, len(text), size)], [TOOL])[1]) == bare(whole)


def test_lenient_takes_them_all_the_same() -> None:
    call = sample_text(dialects.get("hermes"))
    for form in MENTIONED.values():
        reply = parse(form(call), [TOOL], strictness="lenient")
        assert len(reply.calls) + len(reply.malformed) > 0 or "\\" in form(call) or "\n+" in form(call), form(call)


def test_the_trace_says_why() -> None:
    reply = parse(f"Never write:\n```\n{sample_text(dialects.get('hermes'))}\n```", [TOOL])
    assert [(attempt.outcome, attempt.why) for attempt in reply.trace.tries] == [
        ("text", "the text before it shows that it is talked about")
    ]


# --- records ---------------------------------------------------------------------------------------------------------

RECORDS: Iterable[dict[str, Any]] = (
    {"ts": 1793534400, "msg": "finished"},
    {"timestamp": "2026-11-01T12:00:00Z", "level": "info"},
    {"result": "5 degrees"},
    {"results": []},
    {"output": {"degrees": 5}},
    {"duration_ms": 12},
    {"exit_code": 0},
    {"status": "ok"},
    {"time": "12:00", "logger": "tools"},
    {"success": True},
    {"error": "no such city"},
    {"observation": "rain"},
)
ENVELOPES = (("tool", "arguments"), ("name", "arguments"), ("name", "parameters"), ("function", "args"))
PLACES = ("{}", "The log says:\n{}", "The log says:\n\n```json\n{}\n```", "[{}]", '{"tool_calls": [{}]}')


def written(extra: dict[str, Any], name: str, arguments: str, *, first: bool) -> str:
    call = {name: CALL.name, arguments: CALL.arguments}
    return json.dumps({**extra, **call} if first else {**call, **extra})


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("extra", RECORDS, ids=str)
def test_a_record_of_a_call_is_none(extra: dict[str, Any], first: bool) -> None:
    for names in ENVELOPES:
        for place in PLACES:
            is_text(place.replace("{}", written(extra, *names, first=first)))
    inner = {"type": "function", "function": {"name": CALL.name, "arguments": CALL.arguments}}
    if "status" not in extra:
        is_text(json.dumps({**extra, **inner} if first else {**inner, **extra}))


@pytest.mark.parametrize(
    "extra",
    [
        {"id": "call_1", "type": "function", "index": 0},
        {"thought": "I look", "reasoning": "It may rain."},
        {"result": None, "error": "", "ts": None},
        {"type": "function_call", "status": "completed", "call_id": "c"},
        {"message": "I look it up.", "confidence": 0.9},
    ],
    ids=str,
)
def test_what_models_write_beside_a_call_makes_it_no_record(extra: dict[str, Any]) -> None:
    for names in ENVELOPES:
        reply = parse(written(extra, *names, first=False), [TOOL])
        assert [call.arguments for call in reply.calls] == [CALL.arguments], names


def test_a_record_in_a_tag_or_in_the_dialect_asked_for_is_a_call() -> None:
    text = written({"status": "running"}, "tool", "arguments", first=False)
    assert len(parse(f"<tool_call>{text}</tool_call>", [TOOL]).calls) == 1
    assert len(parse(text, [TOOL], expect="json").calls) == 1
    assert len(parse(text, [TOOL], strictness="lenient").calls) == 1


def test_a_key_that_is_a_parameter_makes_no_record() -> None:
    report = {"name": "report", "parameters": {"type": "object", "properties": {"result": {"type": "string"}}}}
    text = '{"tool": "report", "arguments": {"result": "a"}, "result": "a"}'
    assert len(parse(text, [report]).calls) == 1
    assert (
        parse(text.replace('"result": "a"}', '"result": "a"}', 1).replace('}, "result"', '}, "output"'), [report]).calls
        == ()
    )


def test_a_record_is_none_where_no_tools_are_known() -> None:
    assert parse('{"tool": "bash", "arguments": {"command": "ls"}, "exit_code": 0}').calls == ()
