"""The page on malformed headers tells what openai-harmony and promptools make of each: its own rows are played."""

import re
from pathlib import Path

import oracle
import pytest

from promptools import parse
from promptools.errors import clip

PAGE = Path(__file__).parents[2] / "docs" / "why" / "malformed-headers.md"
TOOLS = [{"name": name, "parameters": {"type": "object"}} for name in ("f", "container.exec", "repo_browser.search")]
ROW = re.compile(r"\| `(.*?[^\\])` \| (.*?[^\\]) \| (.*?[^\\]) \|\Z")
LONGEST = 100


def rows():
    rows = [ROW.match(line) for line in PAGE.read_text(encoding="utf-8").splitlines()]
    return [[cell.replace("\\|", "|") for cell in row.groups()] for row in rows if row is not None]


def ours(text):
    """What `promptools.parse` makes of a completion."""
    reply = parse(text, TOOLS, dialect="harmony")
    parts = [f"call of {call.name}" for call in reply.calls]
    parts += [f"a call of {malformed.name}, {malformed.reason}" for malformed in reply.malformed]
    parts += [f"thoughts `{reply.reasoning}`"] if reply.reasoning else []
    parts += [f"answer `{reply.content}`"] if reply.content else []
    return ", ".join(parts) or "nothing"


def theirs(text):
    """What openai-harmony makes of it, strict."""
    encoding, library = oracle.encoding(), oracle.library()
    ids = encoding.encode(text, allowed_special="all")
    try:
        messages = encoding.parse_messages_from_completion_tokens(ids, library.Role.ASSISTANT, strict=True)
    except library.HarmonyError as error:
        return f"error: `{clip(str(error), LONGEST)}`"
    return ", ".join(map(_their, messages)) or "nothing"


def _their(message):
    text = f"`{message.content[0].text}`"
    if message.author.role.value == "tool":
        return f"result {text} of the tool `{message.author.name}`"
    if message.recipient:
        return f"call of `{message.recipient}` with {text}"
    if message.author.role.value != "assistant":
        return f"{text} by the {message.author.role.value}"
    names = {"analysis": "thoughts", "final": "answer", "commentary": "words"}
    return f"{names.get(message.channel, f'channel `{message.channel}`')} {text}"


def test_the_page_has_a_row_for_each_kind():
    assert len(rows()) >= 25


@pytest.mark.parametrize(("text", "_", "expected"), rows())
def test_what_we_make_of_it(text, _, expected):
    assert ours(text) == expected


@pytest.mark.parametrize(("text", "expected", "_"), rows())
@pytest.mark.oracle
def test_what_the_library_makes_of_it(text, expected, _):
    assert theirs(text) == expected
