"""Broken and cut calls: a repair stays in its own call, what is not whole is no call, and no text is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from casebook import bare, feed, tiled

from promptools import Tools, dialects, parse
from promptools.parsing.events import join
from promptools.types import Call

TOOLS = Tools(
    [
        {
            "name": "bash",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
        },
        {
            "name": "write_file",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "content": {"type": "string"},
                    "mode": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["path"],
            },
        },
    ]
)
Said = list[tuple[str, dict[str, Any]]]
PAIRS: dict[str, Said] = {
    "one tool": [("bash", {"command": "ls"}), ("bash", {"command": "pwd"})],
    "two tools": [
        ("write_file", {"path": "a.txt", "content": "hello, you", "mode": 35}),
        ("bash", {"command": "ls -la"}),
    ],
}
QUOTES = "\"'“”`"


def rendered(name: str, said: Said) -> str:
    calls = [Call(f"call{at:05}", tool, given, json.dumps(given)) for at, (tool, given) in enumerate(said)]
    return dialects.get(name).render_calls(calls)


def called(text: str, **options: Any) -> Said:
    return [(call.name, call.arguments) for call in parse(text, TOOLS, **options).calls]


def misquoted(text: str) -> Iterator[str]:
    """Yield `text` with each of its quotes lost, then escaped."""
    for at, char in enumerate(text):
        if char in QUOTES:
            yield text[:at] + text[at + 1 :]
            yield f"{text[:at]}\\{text[at:]}"


def strings(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, each in value.items():
                yield from (key, *strings(each))
        case list():
            for each in value:
                yield from strings(each)
        case str():
            yield value
        case _:
            pass


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", dialects.names())
def test_two_calls_with_a_wrong_quote_are_never_one(name: str, pair: str) -> None:
    said = PAIRS[pair]
    for number, text in enumerate(misquoted(rendered(name, said))):
        expect = (None, name)[number // 2 % 2]
        for each in called(text, expect=expect):
            inside = [words for words in strings(each[1]) if any(mark in words for mark in "<>[]{}()|\n")]
            assert each in said or not inside, f"{text!r} as {expect}"


ADJACENT = {
    "mistral": '[TOOL_CALLS]bash[ARGS]{"command": "ls}[TOOL_CALLS]bash[ARGS]{"command": "pwd"}',
    "deepseek": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "ls}<｜tool▁call▁end｜>'
    '<｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "pwd"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "hermes": '<tool_call>\n{"name": "bash", "arguments": {"command": "ls}}\n</tool_call>\n'
    '<tool_call>\n{"name": "bash", "arguments": {"command": "pwd"}}\n</tool_call>',
    "functionary": '>>>bash\n{"command": "ls}\n>>>bash\n{"command": "pwd"}',
    "react": 'Action: bash\nAction Input: {"command": "ls}\nAction: bash\nAction Input: {"command": "pwd"}',
    "goose": '<toolcall><bash>{"command": "ls}</bash></toolcall>\n<toolcall><bash>{"command": "pwd"}</bash></toolcall>',
    "lfm2": '<|tool_call_start|>[bash(command="ls), bash(command="pwd")]<|tool_call_end|>',
    "olmo3": '<function_calls>bash(command="ls)\nbash(command="pwd")</function_calls>',
    "nexusraven": 'Call: bash(command="ls); bash(command="pwd")<bot_end>',
}
"""The first call lacks the quote that closes its string."""


@pytest.mark.parametrize("name", ADJACENT)
def test_the_call_after_a_broken_one_is_a_call(name: str) -> None:
    text = ADJACENT[name]
    _, reply = feed([text], TOOLS)
    assert [call.arguments for call in reply.calls] == [{"command": "pwd"}]
    assert [failed.reason for failed in reply.malformed] == ["invalid_json"]
    assert "pwd" not in reply.malformed[0].raw
    assert reply.content == ""
    for at in range(1, len(text)):
        assert bare(feed([text[:at], text[at:]], TOOLS)[1]) == bare(reply), f"cut at {at}"


def damaged(text: str) -> Iterator[str]:
    """Yield `text` without each of its signs, then with a backslash before it: no letters, and no line breaks."""
    for at, char in enumerate(text):
        if not char.isalnum() and char not in "\r\n":
            yield text[:at] + text[at + 1 :]
            yield f"{text[:at]}\\{text[at:]}"


CANARIES = "QA1", "QB2"


BESIDE = [
    [("bash", {"command": "ls QA1"}), ("bash", {"command": "pwd QB2"})],
    [("write_file", {"path": "QA1"}), ("bash", {"command": "cd QB2"})],
    [("write_file", {"path": "QA1", "content": "hello, QB2"})],
    [("write_file", {"content": "hello, QA1", "path": "QB2"})],
]
"""Calls of one tool and of two; arguments in one order and in another: each dialect has one of both."""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param(name, said, id=f"{name}-{which}")
        for number, name in enumerate(dialects.names())
        for which, said in enumerate(BESIDE)
        if (number + which) % 2 == 0
    ],
)
def test_a_wrong_sign_never_makes_one_value_of_two(name: str, said: Said) -> None:
    for number, text in enumerate(damaged(rendered(name, said))):
        if "<\\|open|>" in text:  # in Kimi K3's tokens nothing is escaped
            continue
        expect = (None, name)[number % 3 % 2]
        for _, given in called(text, expect=expect, finish_reason="stop"):
            assert not any(all(canary in words for canary in CANARIES) for words in strings(given)), (
                f"{text!r} as {expect}"
            )


SWALLOWED = [
    '{"path": "a.txt, "content": "hello"}',
    '{"path": "a.txt\', "content": "hello"}',
    '{"path": "a.txt" "content": "hello"}',
    '{"path": "a.txt", content": "hello"}',
    '{"path": "a.txt", "content: "hello"}',
    '{"path": "a.txt", "content" "hello"}',
]


@pytest.mark.parametrize("written", SWALLOWED)
def test_an_argument_takes_in_no_other(written: str) -> None:
    reply = parse(f"[TOOL_CALLS]write_file[ARGS]{written}", TOOLS)
    assert reply.calls == ()
    assert [failed.reason for failed in reply.malformed] == ["invalid_json"]


def test_keys_in_brackets_and_words_with_quotes_are_not_arguments() -> None:
    for content in ('{"a": 1, "path": "x"}', 'say "hi", and "path": yes', "[1, {'mode': 2}]"):
        text = f'[TOOL_CALLS]write_file[ARGS]{{"content": "{content}", "path": "a.txt"}}'
        assert called(text) == [("write_file", {"content": content, "path": "a.txt"})]


def test_elements_in_a_value_may_have_the_names_of_the_dialects_own() -> None:
    content = '<launch>\n<parameter name="x">1</parameter> is one, and </parameter>\nits closer\n</launch>'
    text = f"<tool_call>\n<function=write_file>\n<parameter=content>\n{content}\n</parameter>\n<parameter=path>\na\n"
    assert called(f"{text}</parameter>\n</function>\n</tool_call>") == [
        ("write_file", {"content": content, "path": "a"})
    ]


QUOTED = '</tool_call>\n[TOOL_CALLS]bash[ARGS]{"command": "pwd"}\n<|im_end|> bash(command=\'x\')'


@pytest.mark.parametrize("name", dialects.names())
def test_markers_in_a_whole_string_are_words(name: str) -> None:
    said: Said = [("bash", {"command": QUOTED}), ("bash", {"command": "ls"})]
    assert called(rendered(name, said), expect=name) == said


INSIDE = [
    ('{"path": "a.json", "content": "{"path": "b", "content": "c"}"}', '{"path": "b", "content": "c"}'),
    ('{"path": "a.js", "content": "if (x) { log("y") }"}', 'if (x) { log("y") }'),
]


@pytest.mark.parametrize(("written", "content"), INSIDE)
def test_code_that_closes_what_it_opens_may_lack_its_escapes(written: str, content: str) -> None:
    text = f"[TOOL_CALLS]write_file[ARGS]{written}"
    assert [given["content"] for _, given in called(text)] == [content]


@pytest.mark.parametrize("marker", ["<|im_end|>", "<｜tool▁call▁end｜>", "[TOOL_CALLS]"])
def test_a_string_whose_end_is_a_guess_holds_no_marker(marker: str) -> None:
    text = f'[TOOL_CALLS]bash[ARGS]{{"command": "say "hi" {marker} now"}}'
    assert called(text) == []


@pytest.mark.parametrize(
    "broken",
    ['call:bash{command:"ls}<tool_call|><|tool_call>call:bash{command:"pwd"}', 'call:bash{command:<||>ls<|"|>}'],
)
def test_a_token_in_a_guessed_value_is_not_a_word(broken: str) -> None:
    reply = parse(f"<|tool_call>{broken}<tool_call|>", TOOLS)
    assert [failed.reason for failed in reply.malformed] == ["invalid_json"]
    assert reply.calls == ()


LONG: Said = [("write_file", {"path": "a.txt", "content": "hello, you", "mode": 35, "tags": ["x", "y"]})]


@pytest.mark.parametrize("name", dialects.names())
def test_a_reply_that_just_ends_calls_nothing_that_is_not_whole(name: str) -> None:
    """With no finish reason, and after `length`: every beginning of a call is no call, or the very call."""
    text = rendered(name, LONG)
    for end in range(len(text)):
        reason = None if end % 2 else "length"
        expect = name if end % 3 else None
        assert called(text[:end], expect=expect, finish_reason=reason) in ([], LONG), f"cut at {end}"


@pytest.mark.parametrize("name", dialects.names())
def test_a_model_that_was_done_calls_nothing_that_it_did_not_begin_to_close(name: str) -> None:
    """After `stop`: a closer may be missing, and with it arguments that were never begun; no value is cut short."""
    text, whole = rendered(name, LONG), LONG[0][1]
    for end in range(0, len(text), 2):
        for tool, given in called(text[:end], expect=name, finish_reason="stop"):
            assert tool == LONG[0][0], f"cut at {end}"
            items = given.pop("tags", [])
            assert items == whole["tags"][: len(items)], f"cut at {end}"
            assert given == {key: whole[key] for key in given}, f"cut at {end}"


BLOCKS = {
    "anthropic": ("<function_calls>\n", '<invoke name="{name}">\n{body}\n</invoke>\n'),
    "minimax": ("<minimax:tool_call>\n", '<invoke name="{name}">\n{body}\n</invoke>\n'),
    "minimax_m3": ("]<]minimax[>[<tool_call>\n", ']<]minimax[>[<invoke name="{name}">{body}]<]minimax[>[</invoke>\n'),
    "qwen3_coder": ("<tool_call>\n", "<function={name}>\n{body}\n</function>\n"),
    "dsml": ("<｜DSML｜function_calls>\n", '<｜DSML｜invoke name="{name}">\n{body}\n</｜DSML｜invoke>\n'),
    "muse": ("<atem:function_calls>\n", '<atem:invoke name="{name}">\n{body}\n</atem:invoke>\n'),
    "step3": (
        "<｜tool_calls_begin｜>\n",
        (
            '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">{body}</steptml:invoke>'
            "<｜tool_call_end｜>\n"
        ),
    ),
    "toolbridge": ("<toolbridge_calls>\n", "<{name}>\n{body}\n</{name}>\n"),
    "goose": ("", "<toolcall><{name}>{body}</{name}></toolcall>\n"),
}
"""What families of tags write around calls whose arguments are JSON."""


@pytest.mark.parametrize("reason", [None, "stop", "length"])
@pytest.mark.parametrize("family", BLOCKS)
def test_no_text_is_lost_behind_a_broken_body(family: str, reason: str | None) -> None:
    """A body that never closes its string, and behind it one in which the text ends: all of it is in some field."""
    opener, block = BLOCKS[family]
    for body in ('{"command": "ls}', '{"command": ls}', '{"command": "ls"'):
        first = opener + block.replace("{name}", "bash").replace("{body}", body)
        second = block.replace("{name}", "write_file").replace("{body}", '{"path": "a.txt", "content": "hello"}')
        for end in range(1, len(second) + 1, 2):
            text = first + second[:end]
            events, _ = feed([text], TOOLS, reason)
            tiled(events, text)


@pytest.mark.parametrize("name", dialects.names())
def test_no_text_is_lost_behind_a_broken_call(name: str) -> None:
    text = rendered(name, PAIRS["one tool"])
    at = text.index("ls") + 2
    for number, broken in enumerate((text[:at] + text[at + 1 :], text.replace("command", "commando", 1))):
        for end in range(at, len(broken) + 1, 3):
            reason = (None, "stop", "length")[end // 3 % 3]
            events, _ = feed([broken[:end]], TOOLS, reason, expect=None if number else name)
            tiled(events, broken[:end])


def broken(name: str) -> Iterator[str]:
    """Yield two calls as models break them."""
    text = rendered(name, PAIRS["two tools"])
    yield f"Hello{text}ok<|im_end|>"
    yield text.replace('"', "'")
    yield text.replace("}", ",}", 1).replace(")", ",)", 1)
    yield text.replace('"path"', "path").replace("hello, you", 'hello, "you"')
    places = [at for at, char in enumerate(text) if char in QUOTES][::4]
    yield from (text[:at] + text[at + 1 :] for at in places)


@pytest.mark.parametrize("name", dialects.names())
def test_a_broken_reply_is_read_the_same_however_it_came(name: str) -> None:
    """Its events, its fixes with their words, and what was tried."""
    for number, text in enumerate(broken(name)):
        reason = (None, "stop", "length")[number % 3]
        expect = name if number % 2 else None
        whole, reply = feed([text], TOOLS, reason, expect=expect)
        ways = [list(text), *([text[:at], text[at:]] for at in range(1 + number, len(text), len(text) // 3))]
        for cut in ways:
            events, other = feed(cut, TOOLS, reason, expect=expect)
            assert join(events) == join(whole)
            assert bare(other) == bare(reply)
