"""The Responses API by the real SDK: through the proxy, and in process, before a server of Chat Completions alone."""

import asyncio
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai.resources.responses import Responses
from serving import serving
from upstream import Answer, chunk, completion, running, sse

import promptools
from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.proxy.access import ApiKey
from promptools.transport import installed_library
from promptools.transport.endpoints import OPENAI_ENDPOINTS, find_endpoint

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
CALL = completion(None, [("get_weather", '{"city": "Paris"}')])
STREAM = sse(
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "Hm."}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk({}, finish="stop"),
    {**chunk(), "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
)


def needs_method(name):
    """Skip a test where openai's client of Responses does not have this yet."""
    return pytest.mark.skipif(not hasattr(Responses, name), reason=f"this openai has no {name}")


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(params=["proxy", "in process"])
def client(request, server):
    if request.param == "in process":
        with promptools.OpenAI(base_url=server.url, api_key="mine", config=Config(), max_retries=0) as made:
            yield made
        return
    with (
        serving(Proxy(base_url=server.url, config=Config())) as port,
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="mine", max_retries=0) as made,
    ):
        yield made


def test_text(server, client):
    server.play(completion("hello"))
    response = client.responses.create(model="m", input="hi", instructions="Be brief.")
    assert (response.output_text, response.status, response.instructions) == ("hello", "completed", "Be brief.")
    assert (response.usage.input_tokens, response.usage.total_tokens) == (3, 5)
    assert server.seen[0].path == "/v1/chat/completions"
    assert server.seen[0].headers["authorization"] == "Bearer mine"
    assert [message["role"] for message in server.seen[0].json["messages"]] == ["system", "user"]


def test_a_round_of_tools_by_the_previous_response(server, client):
    server.play(CALL, completion("Cold."))
    first = client.responses.create(model="m", input="Weather?", tools=[WEATHER])
    (call,) = first.output
    assert (call.type, call.name, call.arguments) == ("function_call", "get_weather", '{"city": "Paris"}')
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "5 C"}
    second = client.responses.create(model="m", input=[result], previous_response_id=first.id, tools=[WEATHER])
    assert second.output_text == "Cold."
    assert [message["role"] for message in server.seen[1].json["messages"]] == ["user", "assistant", "tool"]


def test_a_round_of_tools_with_the_items_themselves(server, client):
    server.play(CALL, completion("Cold."))
    asked = [{"role": "user", "content": "Weather?"}]
    first = client.responses.create(model="m", input=asked, tools=[WEATHER], store=False)
    result = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "5 C"}
    items = [*asked, *(item.model_dump() for item in first.output), result]
    assert client.responses.create(model="m", input=items, tools=[WEATHER]).output_text == "Cold."
    assert server.seen[1].json["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}'


def test_a_stream(server, client):
    server.play(STREAM)
    events = [*client.responses.create(model="m", input="hi", stream=True)]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello"
    response = events[-1].response
    assert (events[-1].type, response.output_text, response.usage.output_tokens) == ("response.completed", "Hello", 2)
    assert response.output[0].content[0].text == "Hm."


def test_the_helper_for_streams(server, client):
    server.play(STREAM)
    with client.responses.stream(model="m", input="hi") as stream:
        assert stream.get_final_response().output_text == "Hello"


def test_stored_responses(server, client):
    server.play(completion("hello"))
    made = client.responses.create(model="m", input="hi")
    assert client.responses.retrieve(made.id).output_text == "hello"
    (item,) = client.responses.input_items.list(made.id)
    assert (item.role, item.content[0].text) == ("user", "hi")
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.retrieve(made.id)
    assert len(server.seen) == 1


def test_what_is_complete_cannot_be_cancelled(server, client):
    server.play(completion("hello"))
    made = client.responses.create(model="m", input="hi")
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        client.responses.cancel(made.id)
    with pytest.raises(openai.NotFoundError, match="resp_unknown"):
        client.responses.cancel("resp_unknown")
    with pytest.raises(openai.NotFoundError, match="is not a route"):
        client.delete(f"/responses/{made.id}/input_items", cast_to=object)
    assert client.responses.retrieve(made.id).output_text == "hello"
    assert len(server.seen) == 1


@needs_method("input_tokens")
def test_a_count_of_tokens(server, client):
    server.play(completion("a long answer " * 50))
    little = client.responses.input_tokens.count(model="m", input="hi")
    assert little.object == "response.input_tokens"
    assert 0 < little.input_tokens < 10
    more = client.responses.input_tokens.count(model="m", input="hi", tools=[WEATHER], instructions="Be brief.")
    assert more.input_tokens > little.input_tokens + 10
    made = client.responses.create(model="m", input="hi")
    following = client.responses.input_tokens.count(model="m", input="hi", previous_response_id=made.id)
    assert following.input_tokens > 100
    with pytest.raises(openai.BadRequestError, match="resp_lost"):
        client.responses.input_tokens.count(model="m", input="hi", previous_response_id="resp_lost")
    with pytest.raises(openai.BadRequestError, match="no messages"):
        client.responses.input_tokens.count(model="m")
    assert len(server.seen) == 1


@needs_method("compact")
def test_compact_is_for_a_server_that_has_it(server, client):
    compacted = {"id": "resp_c", "object": "response.compaction", "created_at": 1, "output": []}
    server.play({**compacted, "usage": None})
    assert client.responses.compact(model="m", input="hi").id == "resp_c"
    assert (server.seen[0].path, server.seen[0].json["input"]) == ("/v1/responses/compact", "hi")
    for status, body in ((404, b'{"detail": "Not Found"}'), (405, b""), (200, b'{"error": "Unexpected endpoint"}')):
        server.play(Answer(status=status, pieces=(body,)))
        said = rf"/v1/responses/compact is not served here.*HTTP {status}"
        with pytest.raises(openai.NotFoundError, match=said) as error:
            client.responses.compact(model="m", input="hi")
        assert error.value.code == "route_not_served"
    server.play(Answer(status=429, pieces=(b'{"error": {"message": "later"}}',)))
    with pytest.raises(openai.RateLimitError, match="later"):
        client.responses.compact(model="m", input="hi")


def test_errors_of_ours(server, client):
    server.play(completion("hello"))
    with pytest.raises(openai.BadRequestError, match="'background'"):
        client.responses.create(model="m", input="hi", background=True)
    with pytest.raises(openai.BadRequestError, match="'file_search'"):
        client.responses.create(model="m", input="hi", tools=[{"type": "file_search", "vector_store_ids": []}])
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="m", input="hi", previous_response_id="resp_lost")
    assert error.value.code == "previous_response_not_found"
    assert server.seen == []


def test_errors_of_the_server(server, client):
    server.play(Answer(status=404, pieces=(b'{"error": {"message": "no model m", "type": "not_found_error"}}',)))
    with pytest.raises(openai.NotFoundError, match="no model m"):
        client.responses.create(model="m", input="hi")
    with pytest.raises(openai.NotFoundError, match="no model m"):
        client.responses.create(model="m", input="hi", stream=True)


def test_without_blocking(server):
    async def ask():
        async with promptools.AsyncOpenAI(base_url=server.url, api_key="mine", config=Config()) as made:
            response = await made.responses.create(model="m", input="hi", tools=[WEATHER])
            events = [event async for event in await made.responses.create(model="m", input="hi", stream=True)]
            kept = await made.responses.retrieve(response.id)
            return response.output[0].name, events[-1].response.output_text, kept.id == response.id

    server.play(CALL, STREAM)
    assert asyncio.run(ask()) == ("get_weather", "Hello", True)


def test_copies_of_a_client_share_what_is_stored(server):
    server.play(completion("hello"))
    with promptools.OpenAI(base_url=server.url, api_key="mine", config=Config()) as made:
        response = made.responses.create(model="m", input="hi")
        assert made.with_options(timeout=5, trace=True).responses.retrieve(response.id).id == response.id


def test_parsed_output(server, client):
    pydantic = pytest.importorskip("pydantic")

    class City(pydantic.BaseModel):
        name: str

    server.play(completion('{"name": "Oslo"}'))
    assert client.responses.parse(model="m", input="hi", text_format=City).output_parsed == City(name="Oslo")
    assert server.seen[0].json["response_format"]["json_schema"]["name"] == "City"


def test_keys_of_the_proxy_guard_stored_responses_too(server):
    server.play(completion("hello"))
    with serving(Proxy(base_url=server.url, config=Config(), api_keys=["k"])) as port:
        url = f"http://127.0.0.1:{port}/v1/responses"
        with installed_library().module.Client(timeout=300) as http:
            made = http.post(url, json={"model": "m", "input": "hi"}, headers={"authorization": "Bearer k"})
            assert made.status_code == 200
            assert http.get(f"{url}/{made.json()['id']}").status_code == 401
            assert http.delete(f"{url}/{made.json()['id']}").status_code == 401
            assert http.get(f"{url}/{made.json()['id']}", headers={"authorization": "Bearer k"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "url", "intercepted"),
    [
        ("POST", "https://box/v1/responses", True),
        ("POST", "https://box/v1/responses/", True),
        ("GET", "https://box/v1/responses/resp_1", True),
        ("GET", "https://box/v1/responses/resp_1/input_items", True),
        ("DELETE", "https://box/v1/responses/resp_1", True),
        ("GET", "https://box/v1/responses/other", False),
        ("POST", "https://box/v1/responses/resp_1/cancel", True),
        ("POST", "https://box/v1/responses/other/cancel", False),
        ("POST", "https://box/v1/responses/compact", True),
        ("POST", "https://box/v1/responses/input_tokens", True),
        ("POST", "https://api.openai.com/v1/responses/compact", False),
        ("POST", "https://api.openai.com/v1/responses/resp_1/cancel", False),
        ("POST", "https://api.openai.com/v1/responses", False),
        ("POST", "https://mine.openai.azure.com/openai/v1/responses", False),
        ("POST", "https://api.openai.com/v1/chat/completions", True),
    ],
)
def test_which_requests_are_intercepted(method, url, intercepted):
    parts = urlsplit(url)
    endpoint = find_endpoint(OPENAI_ENDPOINTS, method, parts.path, parts.hostname)
    assert (endpoint is not None) == intercepted


KEY_HEADERS = {
    "authorization": "Bearer {}",
    "x-api-key": "{}",
    "api-key": "{}",
    "x-goog-api-key": "{}",
}


def header(field, key):
    return {field: KEY_HEADERS[field].format(key)}


@pytest.mark.parametrize("keys", [(), ("key-a", "key-b")], ids=["the clients' own keys", "keys of the proxy"])
@pytest.mark.parametrize("field", KEY_HEADERS)
def test_a_stored_response_belongs_to_its_key_in_whatever_field_it_came(server, keys, field):
    with serving(Proxy(base_url=server.url, config=Config(), detect=False, api_keys=keys)) as port:
        url = f"http://127.0.0.1:{port}/v1/responses"

        def status(key_field, key, **body):
            headers = header(key_field, key)
            if body:
                return httpx.post(url, json={"model": "m", "input": "hi", **body}, headers=headers).status_code
            return httpx.get(f"{url}/{made['id']}", headers=headers).status_code

        server.play(completion("of a"), completion("more of a"))
        made = httpx.post(url, json={"model": "m", "input": "hi"}, headers=header(field, "key-a")).json()
        assert [status(one, "key-a") for one in KEY_HEADERS] == [200] * len(KEY_HEADERS)
        assert [status(one, "key-b") for one in KEY_HEADERS] == [404] * len(KEY_HEADERS)
        assert status(field, "key-b", previous_response_id=made["id"]) == 400
        assert httpx.delete(f"{url}/{made['id']}", headers=header(field, "key-b")).status_code == 404
        assert status(field, "key-a", previous_response_id=made["id"]) == 200


def test_what_is_not_a_key_of_the_proxy_changes_no_owner(server):
    """The key that opened the proxy decides, not another field beside it that names someone else's."""
    with serving(Proxy(base_url=server.url, config=Config(), detect=False, api_keys=["key-a", "key-b"])) as port:
        url = f"http://127.0.0.1:{port}/v1/responses"
        server.play(completion("of a"))
        made = httpx.post(url, json={"model": "m", "input": "hi"}, headers=header("x-api-key", "key-a")).json()
        beside = {**header("authorization", "anything"), **header("x-goog-api-key", "key-a")}
        assert httpx.get(f"{url}/{made['id']}", headers=beside).status_code == 200


def test_a_name_keeps_its_responses_while_its_key_is_replaced(server):
    keys = [ApiKey("old-key", "web"), ApiKey("new-key", "web"), ApiKey("ci-key", "ci")]
    with serving(Proxy(base_url=server.url, config=Config(), detect=False, api_keys=keys)) as port:
        url = f"http://127.0.0.1:{port}/v1/responses"
        server.play(completion("of web"))
        made = httpx.post(url, json={"model": "m", "input": "hi"}, headers=header("x-api-key", "old-key")).json()
        got = [
            httpx.get(f"{url}/{made['id']}", headers=header("x-api-key", key)).status_code
            for key in ("new-key", "ci-key")
        ]
        assert got == [200, 404]
