"""What we write and what openai-harmony writes, for conversations and schemas that nobody thought of.

Schemas stay within what the library writes whole; the others are rows of `declared.toml`.
"""

import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_harmony_text import CONVERSATIONS

from promptools.harmony.bpe_vocabulary import load_encode
from promptools.harmony.renderer import (
    DeveloperContent,
    Message,
    Namespace,
    SystemContent,
    encode_messages,
    render_messages,
)
from promptools.harmony.tokens import CONTROL_MARKUP, TOKEN_IDS
from promptools.harmony.tool_declarations import FunctionDeclaration, typescript_type

some = settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

tokens = st.sampled_from([f"<|{name}|>" for name in TOKEN_IDS])
lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=12)
texts = st.lists(lines | tokens | st.sampled_from(["\n", "\r\n", "<", "<|", "\\"]), max_size=5).map("".join)
words = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True)
keys = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,6}", fullmatch=True)
members = st.lists(st.text("abc-é ", max_size=4), min_size=1, max_size=3)
about = {"description": lines, "title": lines, "examples": st.lists(lines, max_size=2)}
several_lines = st.lists(lines, max_size=3).map("\n".join)
scalars = st.none() | st.booleans() | st.integers(-3, 3) | several_lines


def said_of(strategy, **more):
    """Add what a property says of itself."""
    return st.tuples(strategy, st.fixed_dictionaries({}, optional={**about, **more})).map(
        lambda both: {**both[1], **both[0]}
    )


plain = st.sampled_from(["string", "number", "integer", "boolean"]).map(lambda kind: {"type": kind})
enums = members.map(lambda values: {"type": "string", "enum": values})
listed = st.lists(
    st.sampled_from(["string", "number", "boolean", "null", "integer"]), min_size=1, max_size=3, unique=True
)
leaves = said_of(
    plain | enums | listed.map(lambda kinds: {"type": kinds}) | st.just({}) | st.just({"type": "array"}),
    default=scalars,
    nullable=st.booleans(),
)


@st.composite
def objects(draw, inner):
    properties = draw(st.dictionaries(keys, inner, max_size=3))
    required = [key for key in properties if draw(st.booleans())]
    schema = {"type": "object", "properties": properties, "required": required}
    return {**schema, **({"description": draw(lines)} if draw(st.booleans()) else {})}


@st.composite
def arrays(draw, inner):
    items = draw(inner.filter(lambda schema: not _choice(schema)))
    return {"type": "array", "items": items}


def _choice(schema):
    """Say whether the library would forget the brackets."""
    kinds = schema.get("type")
    return "oneOf" in schema or len(schema.get("enum", ())) > 1 or (isinstance(kinds, list) and len(kinds) > 1)


def choices(inner):
    variants = st.lists(inner, min_size=1, max_size=3)
    return said_of(variants.map(lambda given: {"oneOf": given}), default=several_lines)


schemas = objects(
    st.recursive(leaves, lambda inner: objects(inner) | said_of(arrays(inner)) | choices(inner), max_leaves=6)
)
functions = st.lists(st.builds(FunctionDeclaration, keys, texts, st.none() | schemas), max_size=3).map(tuple)
spaces = st.lists(st.builds(Namespace, words, functions, texts), max_size=2, unique_by=lambda space: space.name).map(
    tuple
)
systems = st.builds(
    SystemContent,
    identity=st.none() | texts,
    cutoff=st.none() | texts,
    date=st.none() | texts,
    effort=st.none() | st.sampled_from(["low", "medium", "high"]),
    channels=st.sampled_from([("analysis", "commentary", "final"), ("final",), ()]),
    namespaces=spaces,
)
developers = st.builds(DeveloperContent, texts, st.none() | functions, st.just(()), spaces)
turns = st.one_of(
    st.builds(Message, st.just("user"), texts, st.just("") | words),
    st.builds(
        Message,
        st.just("assistant"),
        texts,
        st.just(""),
        st.sampled_from(["", "analysis", "commentary", "final"]),
        st.just("") | words.map("functions.{}".format),
        st.sampled_from(["", "json", "code", "<|constrain|>json"]),
    ),
    st.builds(Message, st.just("tool"), texts, words, st.just("commentary"), st.sampled_from(["", "assistant"])),
)
conversations = st.tuples(
    st.lists(st.builds(Message, st.just("system"), systems | texts), max_size=1),
    st.lists(st.builds(Message, st.just("developer"), developers | texts), max_size=1),
    st.lists(turns, max_size=4),
).map(lambda parts: [message for part in parts for message in part])


@pytest.fixture(autouse=True)
def _there():
    oracle.library()


def agree(messages, then):
    theirs = oracle.ids_of(messages, then)
    assert encode_messages(messages, load_encode(), reply_role=then) == theirs
    ours = render_messages(messages, reply_role=then)
    assert CONTROL_MARKUP.unescape(ours) == oracle.encoding().decode_utf8(theirs)
    # and a server's tokenizer, which takes control tokens wherever it sees one, reads the same structure
    special = set(TOKEN_IDS.values())
    read = oracle.encoding().encode(ours, allowed_special="all")
    assert [token for token in read if token in special] == [token for token in theirs if token in special]


@some
@given(schemas)
@pytest.mark.oracle
def test_types(schema):
    assert typescript_type(schema) == oracle.type_of(schema)


@some
@given(conversations, st.sampled_from(["assistant", None]))
@pytest.mark.oracle
def test_conversations(messages, then):
    agree(messages, then)


@pytest.mark.parametrize("name", [name for name in CONVERSATIONS if name != "forms of the answer"])
@pytest.mark.oracle
def test_the_conversations_of_the_snapshots(name):
    agree(CONVERSATIONS[name], "assistant")
