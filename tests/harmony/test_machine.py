"""The state machine: what is missing, doubled or in another place, and what then is a message, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools.harmony import transcript as harmony
from promptools.harmony.messages import Aside, ContentChunk, HarmonyEnd, HarmonyStart
from promptools.harmony.parser import ItemParser
from promptools.harmony.quotes import QuotedTokens


def summary(text, role="assistant", **options):
    """Tell the items of a text in short; pieces of one content joined."""
    parser = ItemParser(role, **options)
    out = []
    for item in [*parser.feed(text), *parser.close()]:
        match item:
            case HarmonyStart(header):
                out.append(f"{header.role}/{header.channel or header.recipient}")
            case ContentChunk(raw) if out and out[-1].startswith("'"):
                out[-1] = repr(out[-1][1:-1] + raw)
            case ContentChunk(raw):
                out.append(repr(raw))
            case HarmonyEnd(by):
                out.append(f".{by}")
            case Aside(kind, raw):
                out.append(f"{kind} {raw!r}")
    return " ".join(out)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", ""),
        ("  ", "space '  '"),
        ("hi", "words 'hi'"),
        ("<|channel|>final<|message|>a<|end|>", "assistant/final 'a' .end"),
        ("<|channel|>final<|message|>a", "assistant/final 'a' .cut"),
        ("<|channel|>final<|message|>", "assistant/final .cut"),
        ("<|channel|>final", "assistant/final .header"),
        ("<|channel|>", "token '<|channel|>'"),
        ("<|start|>assistant", "token '<|start|>assistant'"),
        ("<|start|>assistant<|end|>", "token '<|start|>assistant' token '<|end|>'"),
        ("<|start|>hm<|end|>", "token '<|start|>' words 'hm' token '<|end|>'"),
        ("<|channel|>hm<|end|>", "token '<|channel|>' words 'hm' token '<|end|>'"),
        ("<|channel|>final a<|end|>", "assistant/final 'a' .end"),
        ("<|channel|>commentary to=f a<|end|>", "assistant/commentary .header"),
        ("<|end|><|end|>", "token '<|end|>' token '<|end|>'"),
        ("a<|end|>.<|end|>", "words 'a' token '<|end|>' debris '.' token '<|end|>'"),
        ("<|channel|>final<|message|>a<|end|>commentary", "assistant/final 'a' .end debris 'commentary'"),
        ("<|channel|>final<|message|>a<|end|>b", "assistant/final 'a' .end words 'b'"),
        ("<|channel|>final<|message|>a<|return|>b c", "assistant/final 'a' .return debris 'b c'"),
        ("<|channel|>final<|message|>a<|return|> b<|start|>",
         "assistant/final 'a' .return space ' ' debris 'b' token '<|start|>'"),
        ("<|channel|>final<|message|>a<|message|>b", "assistant/final 'a<|message|>b' .cut"),
        ("<|channel|>final<|message|><|message|>b", "assistant/final token '<|message|>' 'b' .cut"),
        ("<|channel|>final<|message|>a<|constrain|>b", "assistant/final 'a<|constrain|>b' .cut"),
        ("<|channel|>final<|message|>a<|channel|>b", "assistant/final 'a<|channel|>b' .cut"),
        ("<|channel|>final<|message|>a<|channel|><|end|>", "assistant/final 'a<|channel|>' .end"),
        ("<|channel|>final<|message|>a<|channel|>final", "assistant/final 'a<|channel|>final' .cut"),
        ("<|channel|>final<|message|>a<|channel|>final<|constrain|>json<|message|>{}",
         "assistant/final 'a' .channel assistant/final '{}' .cut"),
        ("<|channel|>final<|message|>aassistant<|channel|>final<|message|>b",
         "assistant/final 'a' .channel assistant/final 'b' .cut"),
        ("<|channel|>final<|message|>a ass<|channel|>final<|message|>b",
         "assistant/final 'a ass' .channel assistant/final 'b' .cut"),
        ("<|channel|>final<|message|>a ass<|constrain|>", "assistant/final 'a ass<|constrain|>' .cut"),
        ("<|channel|>final<|message|>an assistant", "assistant/final 'an assistant' .cut"),
        ("<|channel|>final to=f<|start|>assistant<|channel|>final<|message|>b",
         "assistant/final .header assistant/final 'b' .cut"),
        ("hm assistant<|channel|>final<|message|>b", "words 'hm ' assistant/final 'b' .cut"),
        ("hm [<|channel|>final<|message|>b", "words 'hm [' assistant/final 'b' .cut"),
        ("<|channel|>final<|message|>a<|end|>{}", "assistant/final 'a' .end words '{}'"),
        ("<|channel|>final<|message|>a<|end|>to=f {}", "assistant/final 'a' .end assistant/f '{}' .cut"),
        ("<|channel|>final<|message|>a<|channel|> to=f{}", "assistant/final 'a' .channel assistant/f '{}' .cut"),
        ("<|channel|>??{}", "assistant/ '{}' .cut"),
        ("<|start|>user{}", "token '<|start|>' words 'user{}'"),
    ],
)  # fmt: skip
def test_items(text, items):
    assert summary(text) == items


@pytest.mark.parametrize("kind", ["final", "commentary to=f"])
def test_a_header_that_is_too_long(kind):
    text = f"<|channel|>{kind} {'x ' * 200}<|end|>"
    items = summary(text)
    assert items.startswith("words" if "to=" in kind else "assistant/final")
    assert text.removeprefix("<|channel|>final ").removesuffix("<|end|>") in items


def test_behind_a_header_that_is_too_long_another_may_begin():
    text = "<|start|>" + " " * 250 + "analysis<|channel|>final<|message|>b"
    assert summary(text).endswith("space '  ' assistant/final 'b' .cut")
    assert [summary(text[:at]) for at in (9, 260)] == [
        "token '<|start|>'",
        f"token '<|start|>{' ' * 248}' space '  ' words 'a'",
    ]


def test_a_bracket_behind_so_much_is_not_the_end_of_a_header():
    assert summary("<|channel|>final " + " " * 300 + "{}").startswith("assistant/final ' ")


def test_a_conversation_without_role_begins_with_a_message():
    assert summary("b<|channel|>final<|message|>b", None) == "words 'b' assistant/final 'b' .cut"
    (heard,) = harmony.parse("<|channel|>final<|message|>b").messages
    assert heard.repairs == ("no <|start|>", "nobody speaks")


# --- tokens that are shown


@pytest.mark.parametrize(
    ("words", "token", "shown"),
    [
        ("so `", "start", True),
        ("`", "channel", True),
        ("(`", "channel", True),
        ("a ``", "channel", True),
        ("a`", "channel", False),
        ("so `", "message", False),
        ("so `", "return", False),
        ("```\n", "start", True),
        ("a\n```json\n", "start", True),
        ("a\n```json", "start", False),
        ("a ```json\n", "start", False),
        ("", "start", False),
    ],
)
def test_code_that_begins_with_a_token_shows_it(words, token, shown):
    code = QuotedTokens()
    code.feed(words)
    assert code.is_content(token) is shown


@pytest.mark.parametrize(
    ("before", "behind", "shown"),
    [
        ("`", "assistant", True),
        ("`", "a` and", False),
        ("`", "a\n", False),
        ("```\n", "a\nb", True),
        ("```\n", "a\n```", False),
    ],
)
def test_until_the_code_ends(before, behind, shown):
    code = QuotedTokens()
    code.feed(before)
    assert code.is_content("start")
    code.feed("<|start|>")
    code.feed(behind)
    assert code.is_content("call") is shown
    assert not code.is_content("return")


@given(st.lists(st.sampled_from(["`", "```\n", "a", " ", "\n", "json", "``"]), max_size=8).map("".join))
def test_code_is_the_same_however_it_is_cut(text):
    whole, pieces = QuotedTokens(), QuotedTokens()
    whole.feed(text)
    for char in text:
        pieces.feed(char)
    assert whole.is_content("start") is pieces.is_content("start")


# --- tokens in quotes

QUOTES = ['"', "'", "`", '\\"', "“", "”", "<|end|>", "<|call|>", "<|start|>assistant", "<|channel|>final<|message|>"]
WORDS = ["a", " ", "\n", "\n\n", "{", "}", ", ", ": ", '{"a": "b"}', "assistant"]


@pytest.mark.parametrize("header", ["<|channel|>analysis<|message|>", '<|channel|>commentary to=f<|message|>{"a": "'])
@given(words=st.lists(st.sampled_from([*QUOTES, *WORDS]), max_size=24), size=st.integers(1, 5))
def test_quotes_are_the_same_however_they_are_cut(header, words, size):
    text = header + "".join(words)
    whole = items_of([text])
    assert "".join(item.raw for item in whole) == text
    assert items_of([text[at : at + size] for at in range(0, len(text), size)]) == whole


def items_of(pieces):
    """Return the items of a text, with adjacent items of one kind joined."""
    parser = ItemParser("assistant")
    items = []
    for item in [*(item for piece in pieces for item in parser.feed(piece)), *parser.close()]:
        last = items[-1] if items else None
        if isinstance(item, ContentChunk) and isinstance(last, ContentChunk):
            items[-1] = ContentChunk(last.raw + item.raw)
        elif isinstance(item, Aside) and isinstance(last, Aside) and item.kind == last.kind:
            items[-1] = Aside(item.kind, last.raw + item.raw)
        else:
            items.append(item)
    return items
