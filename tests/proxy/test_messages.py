"""Anthropic's SDK before the proxy, before a server that knows Chat Completions alone."""

import json
import threading

import pytest
from serving import serving
from upstream import Answer, chunk, completion, running, sse

from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.transport import installed_library

anthropic = pytest.importorskip("anthropic")

HELLO = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
TOOL = {
    "name": "get_weather",
    "description": "Get the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
HARMONY = Answer(
    status=500, pieces=(b'{"error": {"message": "Unexpected token 1 while expecting start token 200006"}}',)
)
USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
READS = {"count_tokens": {"model": "m", "messages": HELLO["messages"]}, "create": HELLO}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(server):
    with serving(Proxy(base_url=server.url, config=Config())) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def client(proxy):
    with client_of(proxy) as own:
        yield own


def client_of(proxy, key="mine"):
    return anthropic.Anthropic(base_url=proxy, api_key=key, max_retries=0)


def streamed(client, **keys):
    """The events of a stream by type, and the final message."""
    with client.messages.stream(**{**HELLO, **keys}) as stream:
        kinds = [event.type for event in stream if not event.type.startswith(("text", "thinking", "input_json"))]
        return kinds, stream.get_final_message()


def test_a_message(server, client):
    server.play(completion("hello"))
    message = client.messages.create(**HELLO, system=[{"type": "text", "text": "Be brief."}])
    assert [(block.type, block.text) for block in message.content] == [("text", "hello")]
    assert (message.stop_reason, message.role, message.type) == ("end_turn", "assistant", "message")
    (seen,) = server.seen
    assert seen.path == "/v1/chat/completions"
    assert seen.json == {
        "model": "m",
        "max_tokens": 100,
        "messages": [{"role": "system", "content": "Be brief."}, *HELLO["messages"]],
    }
    assert seen.headers["authorization"] == "Bearer mine"
    assert not [name for name in seen.headers if name.lower().startswith(("anthropic", "x-api-key"))]


def test_the_way_of_claude_code(server, proxy):
    """By a bearer token, with betas, the query and the billing line."""
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.160; cch=4f2a1;"}
    system = [billing, {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}}]
    server.play(completion("hello"))
    with anthropic.Anthropic(base_url=proxy, auth_token="mine", api_key=None, max_retries=0) as client:
        message = client.beta.messages.create(
            **HELLO,
            system=system,
            thinking={"type": "adaptive"},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            metadata={"user_id": "user_x"},
            betas=["claude-code-20250219", "made-up-2031-01-01"],
        )
    assert message.content[0].text == "hello"
    (seen,) = server.seen
    assert seen.path == "/v1/chat/completions"
    assert seen.json["messages"][0]["content"] == "You are Claude Code."
    assert seen.headers["authorization"] == "Bearer mine"


def test_a_round_trip_with_a_tool(server, client):
    server.play(completion("Look:", [("get_weather", '{"city": "Paris"}')]), completion("Sunny."))
    first = client.messages.create(**HELLO, tools=[TOOL], tool_choice={"type": "any"})
    text, call = first.content
    assert (first.stop_reason, text.text, call.name, call.input) == (
        "tool_use",
        "Look:",
        "get_weather",
        {"city": "Paris"},
    )
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}
    history = [
        *HELLO["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    last = client.messages.create(**{**HELLO, "messages": history}, tools=[TOOL])
    assert last.content[0].text == "Sunny."
    asked, told = server.seen
    assert asked.json["tool_choice"] == "required"
    _, assistant, tool = told.json["messages"]
    assert assistant["tool_calls"][0]["id"] == tool["tool_call_id"] == "call_0"
    assert (assistant["content"], tool["content"]) == ("Look:", "sunny")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_runner_of_tools(server, client, stream):
    """It continues threads, which are not held here, and sends the whole conversation once it is told."""

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Get the weather."""
        return f"{city}: sunny"

    call, answer = completion(None, [("get_weather", '{"city": "Paris"}')]), completion("Sunny.")
    if stream:
        call, answer = (sse(chunk(body["choices"][0]["message"]), chunk({}, finish="stop")) for body in (call, answer))
    server.play(call, answer)
    runner = client.beta.messages.tool_runner(**HELLO, tools=[get_weather], stream=stream)
    last = [turn.get_final_message() if stream else turn for turn in runner][-1]
    assert last.content[0].text == "Sunny."
    assert [message["role"] for message in server.seen[1].json["messages"]] == ["user", "assistant", "tool"]
    assert server.seen[1].json["messages"][2]["content"] == "Paris: sunny"


def test_a_stream(server, client):
    server.play(
        sse(
            chunk({"role": "assistant", "content": ""}),
            chunk({"reasoning_content": "Hm."}),
            chunk({"content": "Let me look at it."}),
            chunk({"tool_calls": [call_delta(0, '{"city": "Pa')]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": 'ris"}'}}]}),
            chunk({"tool_calls": [call_delta(1, '{"city": "Rome"}')]}),
            chunk({}, finish="tool_calls"),
            {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": USAGE},
        )
    )
    kinds, message = streamed(client, tools=[TOOL])
    assert [kind for kind in kinds if kind not in {"content_block_delta", "signature"}] == [
        "message_start",
        *("content_block_start", "content_block_stop") * 4,
        "message_delta",
        "message_stop",
    ]
    thoughts, text, *calls = message.content
    assert (thoughts.thinking, bool(thoughts.signature), text.text) == ("Hm.", True, "Let me look at it.")
    assert [(call.id, call.input) for call in calls] == [("call_0", {"city": "Paris"}), ("call_1", {"city": "Rome"})]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (12, 5)


def call_delta(index, arguments):
    function = {"name": "get_weather", "arguments": arguments}
    return {"index": index, "id": f"call_{index}", "type": "function", "function": function}


def test_a_stream_comes_as_it_is_made(server, client):
    came = threading.Event()
    chunks = (chunk({"content": "Some words. "}), chunk({"content": "More."}), chunk({}, finish="stop"))
    server.play(sse(*chunks, between=lambda: came.wait(300)))
    words = []
    with client.messages.stream(**HELLO) as stream:
        for word in stream.text_stream:
            words.append((word, came.is_set()))
            came.set()
    assert words[0][1] is False
    assert "".join(word for word, _ in words) == "Some words. More."


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_whose_tools_are_broken(server, client, stream):
    server.play(HARMONY, sse(chunk({"content": FENCED}), chunk({}, finish="stop")) if stream else completion(FENCED))
    message = streamed(client, tools=[TOOL])[1] if stream else client.messages.create(**HELLO, tools=[TOOL])
    (call,) = message.content
    assert (call.name, call.input, message.stop_reason) == ("get_weather", {"city": "Paris"}, "tool_use")


def test_a_stream_that_breaks_off_is_an_error(server, client):
    server.play(sse(chunk({"content": "Some words. "}), done=False, then="cut"))
    with pytest.raises(anthropic.APIError) as raised:
        streamed(client, tools=[TOOL])
    assert raised.value.body["error"]["type"] == "api_error"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, anthropic.BadRequestError),
        (401, anthropic.AuthenticationError),
        (404, anthropic.NotFoundError),
        (429, anthropic.RateLimitError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_of_the_server(server, client, status, error, stream):
    server.play(*[Answer(status=status, pieces=(b'{"error": {"message": "no such luck"}}',))] * 4)
    with pytest.raises(error, match="no such luck") as raised:
        streamed(client) if stream else client.messages.create(**HELLO)
    assert raised.value.body["type"] == "error"


def test_what_cannot_be_served_is_named(server, client):
    server.play()
    with pytest.raises(anthropic.BadRequestError, match="web_search_20250305"):
        client.messages.create(**HELLO, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert not server.seen


def test_tokens_are_counted_without_the_server(server, client):
    server.play()
    small = client.messages.count_tokens(**READS["count_tokens"])
    large = client.messages.count_tokens(**READS["count_tokens"], tools=[TOOL], system="Be brief.")
    assert 1 <= small.input_tokens < large.input_tokens
    assert not server.seen


@pytest.mark.parametrize("method", READS)
def test_the_proxys_own_key(server, method):
    server.play(completion("hello"))
    with serving(Proxy(base_url=server.url, config=Config(), api_keys=["k1"])) as port:
        with (
            client_of(f"http://127.0.0.1:{port}", "other") as client,
            pytest.raises(anthropic.AuthenticationError) as no,
        ):
            getattr(client.messages, method)(**READS[method])
        assert no.value.body["error"]["type"] == "authentication_error"
        assert not server.seen
        with client_of(f"http://127.0.0.1:{port}", "k1") as client:
            assert getattr(client.messages, method)(**READS[method])
    assert [seen.headers["authorization"] for seen in server.seen] == [None] * (method == "create")


def test_a_body_that_is_too_long(server):
    with (
        serving(Proxy(base_url=server.url, config=Config(), max_body=50)) as port,
        client_of(f"http://127.0.0.1:{port}") as client,
        pytest.raises(anthropic.APIStatusError) as raised,
    ):
        client.messages.create(**HELLO)
    assert raised.value.status_code == 413
    assert raised.value.body["error"]["type"] == "request_too_large"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_server_that_is_not_there(server):
    with (
        serving(Proxy(base_url="http://127.0.0.1:9/v1", config=Config(), detect=False)) as port,
        client_of(f"http://127.0.0.1:{port}") as client,
        pytest.raises(anthropic.InternalServerError) as raised,
    ):
        client.messages.create(**HELLO)
    assert raised.value.status_code == 502
    assert raised.value.body["error"]["type"] == "api_error"


def test_other_routes_of_the_same_name_pass_as_they_are(server, proxy):
    server.play(Answer(pieces=(b'{"id": "msg_1"}',)))
    with installed_library().module.Client(timeout=300) as http:
        answer = http.post(f"{proxy}/v1/threads/t/messages", json={"role": "user", "content": "hi"})
    assert answer.json() == {"id": "msg_1"}
    assert server.seen[0].path == "/v1/threads/t/messages"
    assert json.loads(server.seen[0].body) == {"role": "user", "content": "hi"}
