"""Control tokens next to a call, or to the end of a turn, are no text; in a sentence they are.

The tokens are those that the facts of each family list and those that its dialect declares. Readable tags, and what
encloses thoughts and answers, are no part of it: these have a meaning where they stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache

import pytest
from casebook import bare, feed, tools_of

from promptools import dialects, parse
from promptools.dialects.contract import Dialect
from promptools.dialects.reply_markers import reply_markers
from promptools.profiles import families, family_dialect, load_builtin
from promptools.types import Call

TOOLS = tools_of("demo")
READABLE = re.compile(r"</?[A-Za-z_:]+>\Z|✿")
UNKNOWN = "<|a_token_that_nobody_declared|>"
OWN_MESSAGES = {"harmony", "muse"}
"""Dialects whose tokens are headers and ends of messages."""
MANY = "[unused{n}]"
"""The tokens of openPangu's vocabulary that have no meaning, and those that have one and are declared."""
ELSEWHERE = {"<|python_tag|>", "<|from|>", "<|recipient|>", "<|interpreter|>"}
"""Tokens that begin a call, a program or a message in some dialect: what follows them counts."""


def calls(dialect: Dialect, *names: str) -> str:
    arguments = {"get_weather": {"city": "Oslo"}, "ping": {}}
    return dialect.render_calls(
        [Call("a1b2c3d4e", name, arguments[name], json.dumps(arguments[name])) for name in names]
    )


@cache
def tokens_of(name: str) -> tuple[str, ...]:
    """Return the control tokens of the families that speak a dialect."""
    dialect = dialects.get(name)
    facts = (fact for family in families() if family_dialect(family) == name for fact in load_builtin(family).facts)
    listed = (token for fact in facts if fact.key == "control_tokens" for token in fact.value)
    own = (*dialect.end_tokens, *dialect.control_tokens, *dialect.turn_tokens)
    known = reply_markers()
    framing = {*known.reasoning_tags, *known.lone_closers, *known.answer_tags, *known.answer_tags.values()}
    every = (token.replace("{n}", "5") for token in (*listed, *own, UNKNOWN) if "{word}" not in token and token != MANY)
    whole = (token for token in every if token[-1] in ">]" and not READABLE.match(token))
    return tuple(token for token in dict.fromkeys(whole) if token not in framing and token not in ELSEWHERE)


NAMES = [name for name in dialects.names() if name not in {"mimicry", *OWN_MESSAGES}]


def is_result_opener(token: str) -> bool:
    return any(opener.startswith(token) or token.startswith(opener) for opener in reply_markers().result_openers)


def beside_a_call(dialect: Dialect, token: str) -> Iterator[tuple[str, str, int]]:
    """Yield texts with a token next to a call, with their content and the number of their calls."""
    call, ping = calls(dialect, "get_weather"), calls(dialect, "ping")
    yield f"{token}{call}", "", 1
    yield f"{token}\n{call}", "", 1
    yield f"I look.{token}{call}", "I look.", 1
    yield f"I look.\n{token}\n{call}", "I look.", 1
    yield f"{call}{token}", "", 1
    yield f"{call}\n{token}\n", "", 1
    yield f"{call}{token}{token}", "", 1
    yield f"{call}<|im_end|>{token}", "", 1
    yield f"{call}{token}<|im_end|>", "", 1
    if not is_result_opener(token):  # with all that follows it is made up
        yield f"{call}{token}{ping}", "", 2
        yield f"{call}\n{token}\n{ping}", "", 2
    result = dialect.result_openers[0] if dialect.result_openers else "<tool_response>"
    yield f"{call}\n{result}5 C{token}It is 5 C.{token}", "", 1


def at_the_end(token: str) -> Iterator[tuple[str, str, int]]:
    """Yield answers with a token next to the end of the turn."""
    yield f"Done.{token}<|im_end|>", "Done.", 0
    yield f"Done.<|im_end|>{token}", "Done.", 0
    yield f"Done.<|im_end|>\n{token}\n", "Done.", 0
    declared = reply_markers().end_tokens
    if token in declared or any(token in dialects.get(name).control_tokens for name in dialects.names()):
        yield f"Done.{token}", "Done.", 0
        yield f"Done.\n{token}\n", "Done.", 0


IN_PROSE = (
    "The token {} ends a turn.",
    "It writes {}, and then goes on.",
    "`{}` is a token.",
    'Tokens are "{}" and others.',
    "The tokens:\n\n- {}: the end\n- others",
    "| token | what |\n| --- | --- |\n| {} | the end |",
    "The end ({}) comes last.",
    "The model wrote {} and {} there.",
    "What does {} mean?",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_token_beside_a_call_is_not_text(name: str) -> None:
    dialect = dialects.get(name)
    expect = None if parse(calls(dialect, "ping"), TOOLS).calls else name
    for token in tokens_of(name):
        for text, content, count in (*beside_a_call(dialect, token), *at_the_end(token)):
            reply = parse(text, TOOLS, expect=expect, finish_reason="stop")
            assert (reply.content, reply.reasoning, len(reply.calls)) == (content, "", count), text


@pytest.mark.parametrize("name", NAMES)
def test_a_token_in_a_sentence_is_text(name: str) -> None:
    call = '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'
    for token in tokens_of(name):
        for form in IN_PROSE:
            text = form.replace("{}", token)
            reply = parse(text, TOOLS, finish_reason="stop")
            assert (reply.content, reply.reasoning, reply.calls) == (text, "", ()), text
            reply = parse(f"{text}\n\n{call}", TOOLS, finish_reason="stop")
            assert (reply.content, reply.reasoning, len(reply.calls)) == (text, "", 1), text


@pytest.mark.parametrize("name", NAMES)
def test_however_it_is_cut(name: str) -> None:
    dialect, tokens = dialects.get(name), tokens_of(name)
    for token in {*tokens[:1], *tokens[-2:]}:
        for text, _, _ in (*beside_a_call(dialect, token), *at_the_end(token)):
            whole = bare(parse(text, TOOLS))
            assert bare(feed([text[at : at + 3] for at in range(0, len(text), 3)], TOOLS)[1]) == whole, text
            assert bare(feed(text, TOOLS)[1]) == whole, text
