"""Neither recordings nor the inspector keep a key, of a client or of the provider, however a server repeats it."""

import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import serving
from upstream import chunk, completion, running, sse, unary

from promptools.masking import SecretMask
from promptools.profiles import Config, Provider
from promptools.proxy import Proxy
from promptools.proxy.inspector import Inspector
from promptools.proxy.inspector.exchange_view import mask_body
from promptools.proxy.operations import RecordingExtension
from promptools.recording import Recorder

CLIENT = "ck-of/client+1="
PROVIDER = "sk-of/provider+2="
QUERY = "q-of-the-client"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def pieces(key, wrap):
    """Stream a key a few characters at a time."""
    return [wrap(key[at : at + 3]) for at in range(0, len(key), 3)]


def call(arguments, name=None, index=0):
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return chunk({"tool_calls": [{"index": index, "function": function, **({"id": "c1"} if name else {})}]})


def content(text):
    return chunk({"content": text})


END = chunk({}, "stop")
REPLIES = {
    "whole content": lambda key: unary(completion(f"Your key is {key}.")),
    "whole reasoning": lambda key: unary(
        {
            **completion(),
            "choices": [{"index": 0, "message": {"content": "", "reasoning_content": f"It is {key}."}}],
        }
    ),
    "whole arguments": lambda key: unary(completion(None, [("f", json.dumps({"a": key}))])),
    "escaped arguments": lambda key: unary(
        completion(None, [("f", json.dumps({"a": key}).replace("/", "\\/").replace("+", "\\u002b"))])
    ),
    "a name": lambda key: unary(completion(None, [(key, "{}")])),
    "a call in text": lambda key: unary(completion(f'```json\n{{"tool": "f", "arguments": {{"a": "{key}"}}}}\n```')),
    "a finish reason": lambda key: unary(completion("hi", finish=key)),
    "usage": lambda key: unary({**completion("hi"), "usage": {"prompt_tokens": 1, key: {"note": key}}}),
    "content in pieces": lambda key: sse(*pieces(key, content), END),
    "reasoning in pieces": lambda key: sse(*pieces(key, lambda text: chunk({"reasoning_content": text})), END),
    "arguments in pieces": lambda key: sse(
        call('{"a": "', "f"), *pieces(key, call), call('"}'), chunk({}, "tool_calls")
    ),
    "content around a call": lambda key: sse(
        content(key[:5]), call("{}", "f"), content(key[5:]), chunk({}, "tool_calls")
    ),
    "reasoning, then content": lambda key: sse(chunk({"reasoning_content": key[:5]}), content(key[5:]), END),
    "calls that take turns": lambda key: sse(
        call(f'{{"a": "{key[:4]}', "f"),
        call('{"b": 1', "f", 1),
        call(f'{key[4:]}"}}'),
        call("}", index=1),
        chunk({}, "tool_calls"),
    ),
    "an error": lambda key: unary({"error": {"message": f"bad key {key}"}}),
    "a field": lambda key: unary(completion("hi"), headers={"Set-Cookie": f"a={key}"}),
}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def kept(server, tmp_path_factory):
    """The proxy's client, its inspector, and what it has recorded so far."""
    folder = tmp_path_factory.mktemp("recordings")
    recorder, inspector = Recorder(folder, messages=True), Inspector()

    def recorded():
        recorder.flush()
        return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_KEY", PROVIDER)
        provider = Provider("a", kind="vllm", base_url=server.url, api_key_env="A_KEY")
        config, extensions = Config(providers={"a": provider}), [inspector, RecordingExtension(recorder)]
        app = Proxy(config=config, provider="a", detect=False, api_keys=[CLIENT], extensions=extensions)
        fields = {"x-goog-api-key": CLIENT}
        with (
            serving(app) as port,
            httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=fields, timeout=60) as client,
        ):
            yield client, recorded


def strings(value):
    """Yield every string of a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield name
            yield from strings(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from strings(entry)


def texts(raw):
    """Return what the strings of a stream say together, one kind at a time."""
    said = {}
    for line in raw.splitlines():
        try:
            value = json.loads(line.removeprefix("data: "))
        except ValueError:
            continue
        for choice in value.get("choices", []):
            delta = choice.get("delta") or choice.get("message") or {}
            for kind in ("content", "reasoning_content"):
                said[kind] = said.get(kind, "") + (delta.get(kind) or "")
            for one in delta.get("tool_calls") or []:
                index = one.get("index", 0)
                said[index] = said.get(index, "") + (one["function"].get("arguments") or "")
    return list(said.values())


@pytest.mark.parametrize("key", [CLIENT, PROVIDER, QUERY], ids=["client", "provider", "query"])
@pytest.mark.parametrize("form", REPLIES)
def test_no_key_is_recorded_or_shown(server, kept, form, key):
    client, recorded = kept
    server.play(*(REPLIES[form](key) for _ in range(9)))
    before = len(recorded())
    body = {"model": "m", "messages": [{"role": "user", "content": f"Is it {key}?"}], "tools": TOOLS}
    streamed = "pieces" in form or any(word in form for word in ("around", "then", "turns"))
    client.post("/v1/chat/completions", params={"api_key": QUERY}, json={**body, "stream": streamed})
    rows = recorded()[before:]
    assert rows
    assert key not in rows
    assert all(key not in "".join(strings(json.loads(line)["replies"])) for line in rows.splitlines())
    shown = client.get("/inspect/api/exchanges").text
    assert key not in shown
    detail = client.get(f"/inspect/api/exchanges/{json.loads(shown)['exchanges'][-1]['id']}")
    assert not {key, json.dumps(key.replace("/", "\\/").replace("+", "\\u002b"))[1:-1]} & {detail.text}
    assert key not in detail.text
    view = detail.json()
    for raw in (view["response"]["text"], *(send["response"]["text"] for send in view["sends"])):
        assert all(key not in said for said in texts(raw))
        assert not raw or raw.count("{") == raw.count("}")


WORDS = st.lists(st.sampled_from(["k/y", "k", "/y+", "+1", "k/y+1", '"', "a", "\n", "\\"]), max_size=8)


@given(st.lists(WORDS, min_size=1, max_size=4), st.sampled_from([None, 1]))
def test_a_stream_is_masked_at_each_place_and_stays_json(events, indent):
    values = [
        {
            "choices": [
                {"index": number % 2, "delta": {"content": word, "k/y+1": 1}} for number, word in enumerate(words)
            ]
        }
        for words in events
    ]
    text = (
        "".join(f"data: {json.dumps(value)}\n\n" for value in values)
        if indent is None
        else json.dumps(values, indent=1)
    )
    masked = mask_body(text, SecretMask(["k/y+1"]))
    lines = [line[6:] for line in masked.splitlines() if line] if indent is None else [masked]
    read = [value for line in lines for value in ([json.loads(line)] if indent is None else json.loads(line))]
    for index in (0, 1):
        said = "".join(one["delta"]["content"] for value in read for one in value["choices"] if one["index"] == index)
        assert "k/y+1" not in said
        before = "".join(
            one["delta"]["content"] for value in values for one in value["choices"] if one["index"] == index
        )
        assert said == before.replace("k/y+1", "*****")


def test_a_body_without_a_secret_is_shown_as_it_came():
    for text in ("", "data: {", '{"a": "\\u0041"}', "data: {}\n\nnot JSON \x00"):
        assert mask_body(text, SecretMask(["some-secret"])) == text
        assert mask_body(text, SecretMask([])) == text


@given(st.lists(st.text("ab1", max_size=6), max_size=6))
def test_pieces_are_masked_as_their_text_is(parts):
    mask = SecretMask(["ab1", "ba"])
    masked = mask.pieces(parts)
    assert "".join(masked) == mask.text("".join(parts))
    assert len(masked) == len(parts)
