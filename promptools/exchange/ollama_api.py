"""Serve clients of Ollama's API, even if the server is not Ollama.

Responses are NDJSON lines or one JSON body, and have a single choice. A server that has Ollama's routes answers
requests to them itself. For any other server, promptools answers the requests: models come from the server's
`/v1/models`, embeddings from its `/v1/embeddings`. A request to `/api/generate` becomes a chat with a single turn or,
with `raw`, a request to the server's `/v1/completions`.

A request to a route other than chat may carry an uploaded model of many gigabytes, so it is at first handled without
its body. The kind of server is detected; if the server may have the route itself, the request is forwarded unchanged.
The formats are in `wire.ollama_in` and `wire.ollama_out`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.errors import UsageError, without_credentials
from promptools.exchange.client_api import ClientApi, respond_bad_request, respond_failure, respond_no_answer, run_route
from promptools.exchange.detection import resolve_route
from promptools.exchange.effects import Body, Failed, Headers, Opened, ReadBody, ResponseHead
from promptools.exchange.failures import Failure, failure_of_connection, failure_of_error, failure_of_status
from promptools.exchange.response_writer import JsonWriter, ResponseWriter, SseWriter, encode_json
from promptools.exchange.runner import run
from promptools.exchange.state import ExchangeState
from promptools.exchange.upstream import ReplyDecoder, is_stream
from promptools.json_values import try_json
from promptools.modes.prepared_request import MIN_ANSWER_TOKENS, text_tokens
from promptools.numbers import as_count
from promptools.profiles import load_builtin
from promptools.profiles.facts import family_of
from promptools.profiles.profile import GENERIC
from promptools.profiles.server_detection import LLAMACPP, OLLAMA, may_serve_ollama
from promptools.wire import ollama_out
from promptools.wire.chat_decoder import Envelope
from promptools.wire.json_body import as_list, as_object, as_text, parse_object
from promptools.wire.ollama_in import (
    check_generate_request,
    decode_chat_request,
    embedding_inputs,
    encode_as_chat,
    encode_as_completion,
    is_unload_request,
)
from promptools.wire.ollama_out import ListedModel, encode_generated, encode_line, encode_message, encode_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.commit_point import ChoiceWriter
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.response_writer import Summary
    from promptools.exchange.runner import Exchange
    from promptools.exchange.state import Steps
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles import Profile, Target
    from promptools.profiles.profile import Wire
    from promptools.types import Attempt, Reply, ServerInfo
    from promptools.wire.chat_decoder import Delta


NDJSON = "application/x-ndjson"


class NdjsonWriter(SseWriter):
    """Writes a response as a stream of newline-delimited JSON."""

    content_type = NDJSON
    heartbeat = b""

    def end(self, summary: Summary) -> bytes:
        """Return the last line, with token counts and durations."""
        last = self._held_chunk or {}
        figures = ollama_out.encode_usage(summary.usage, self._last_extra, summary.seconds, summary.phases)
        return self._encode([summary.with_report(last | figures)])

    def _encode(self, bodies: Iterable[Mapping[str, Any]]) -> bytes:
        return b"".join(b"%b\n" % encode_json(self._shape(body)) for body in bodies)

    def _shape(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert a line of `/api/chat` to the form of the endpoint that was called.

        This class serves `/api/chat` itself, so it returns the line unchanged.
        """
        return body

    def _make_writer(self, index: int, envelope: Envelope) -> ChoiceWriter:  # noqa: ARG002 one signature for all writers
        return ollama_out.LineWriter(envelope)


class OllamaJsonWriter(JsonWriter):
    """Collects a whole response and writes it as one JSON body."""

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:  # noqa: ARG002 one signature for all writers
        """Store the response body."""
        message = ollama_out.encode_message(reply.content, reply.reasoning, reply.calls)
        self._choices[index] = ollama_out.mark_done(
            ollama_out.encode_line(envelope, message, logprobs=self._logprobs.get(index)), reply
        )
        self._envelope = self._envelope or envelope
        return b""

    def end(self, summary: Summary) -> bytes:
        """Return the whole response, with token counts and durations."""
        extra = self._envelope.extra if self._envelope else {}
        choice = self._choices.get(0, {})
        body = {**choice, **ollama_out.encode_usage(summary.usage, extra, summary.seconds, summary.phases)}
        return encode_json(summary.with_report(self._shape(body)))

    def _shape(self, body: dict[str, Any]) -> dict[str, Any]:
        """Convert a response of `/api/chat` to the form of the endpoint that was called.

        This class serves `/api/chat` itself, so it returns the response unchanged.
        """
        return body


class GenerateNdjsonWriter(NdjsonWriter):
    """Writes the lines of `/api/generate`."""

    def _shape(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return ollama_out.encode_generated(body)


class GenerateJsonWriter(OllamaJsonWriter):
    """Writes the whole response of `/api/generate`."""

    def _shape(self, body: dict[str, Any]) -> dict[str, Any]:
        return ollama_out.encode_generated(body)


class OllamaApi:
    """Implements Ollama's `/api/chat` route."""

    wire: Wire | None = "ollama"
    streams_arguments = False  # its arguments are an object
    path = "/api/chat"

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Convert the request to Chat Completions."""
        return decode_chat_request(body, profile)

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:
        """Return a writer of NDJSON lines if a stream is requested, else a writer of one JSON body."""
        return NdjsonWriter(request, begun=begun) if request.stream else OllamaJsonWriter(request)

    def encode_error(
        self,
        message: str,
        *,
        kind: str,  # noqa: ARG002 one signature for all APIs
        code: str,  # noqa: ARG002 one signature for all APIs
        attempts: Iterable[Attempt] = (),  # noqa: ARG002 one signature for all APIs
        request_id: str = "",
    ) -> bytes:
        """Encode the message and the request id; errors of this API have no other fields."""
        return encode_json({"error": message, **({"request_id": request_id} if request_id else {})})

    def encode_stream_error(self, error: bytes, note: str = "") -> bytes:  # noqa: ARG002 one signature for all APIs
        """Encode the error as a line; the note is left out, since NDJSON allows no comments."""
        return error + b"\n"

    def encode_server_error(self, failure: Failure) -> bytes:
        """Return an error of Ollama unchanged; convert any other error to Ollama's form, with only its text."""
        if as_text(as_object(try_json(failure.body)).get("error")):
            return failure.body
        return encode_json({"error": failure.text or failure.why})


OLLAMA_API: ClientApi = OllamaApi()


# Shared by Ollama's routes for a server that lacks them: the routed request, and requests to the server.


JSON: Headers = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A request to one of Ollama's routes that promptools itself answers."""

    state: ExchangeState
    data: dict[str, Any]
    """The parsed body; empty if the request has none."""
    target: Target
    model: str
    """The server's name for the model; empty if the request names none."""
    requested_model: str
    """The name of the model in the request."""

    @property
    def now(self) -> int:
        """The current time in seconds since 1970; 0 if there is no clock."""
        clock = self.state.context.wall_clock
        return int(clock().timestamp()) if clock is not None else 0

    def emit(self, body: Mapping[str, Any], status: int = 200) -> Steps[None]:
        """Send the whole response."""
        yield from self.state.emit(encode_json(body), lambda: ResponseHead(status, JSON))

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Steps[dict[str, Any] | None]:
        """Send a request to one of the server's OpenAI routes; return the JSON response, or None on failure.

        If None is returned, an error has already been sent to the client. Without a `body`, the request is a GET.
        """
        state = self.state
        opened = yield from state.send(encode_json(body) if body else b"", path, method="POST" if body else "GET")
        if isinstance(opened, Failed):
            yield from respond_no_answer(state, opened)
            return None
        if not 200 <= opened.status < 300:
            answer = yield from state.read_error()
            error = state.client_api.encode_server_error(failure_of_status(opened, answer))
            yield from state.emit(error, lambda: ResponseHead(opened.status if opened.status >= 400 else 502, JSON))
            return None
        answer = yield from state.read_all()
        reply = yield from state.compute(partial(parse_object, answer), len(answer))
        if not isinstance(reply.get("data"), list):
            yield from self.emit({"error": f"the server's response to /{path} is not that of OpenAI's API"}, 502)
            return None
        return reply


Respond: TypeAlias = "Callable[[ServedRequest], Steps[None]]"
"""A function that responds to a `ServedRequest`."""


def serve_route(request: ClientRequest, context: Context, respond: Respond) -> Exchange:
    """Find the server and the model for a request, and let `respond` answer the request."""
    state = ExchangeState(request, context)
    return run_route(state, _respond(state, respond))


def _respond(state: ExchangeState, respond: Respond) -> Steps[None]:
    data = parse_object(state.request.body)
    name = requested_model(data)
    route = state.context.route(name or None, None)
    model = route.target.model or name
    route = yield from resolve_route(state, route, model)
    state.url, state.headers = route.url, route.headers
    target = route.target
    state.provider_model = (target.provider or target.base_url or state.request.url, model)
    yield from respond(ServedRequest(state, data, target, model, name))


def requested_model(data: Mapping[str, Any]) -> str:
    """Return the model that a request names, as `model` or, from older clients, as `name`."""
    return as_text(data.get("model")) or as_text(data.get("name"))


# The models of a server that is not Ollama, from its `/v1/models`: `/api/tags`, `/api/ps` and `/api/show`.


_OLLAMA_VERSION = "0.32.15"
"""The Ollama version to report: the one whose API promptools serves. Apps refuse versions that are too old for them."""


def respond_version(served: ServedRequest) -> Steps[None]:
    """Respond with an Ollama version, and with `served_by`, which shows a client that this server is not Ollama."""
    yield from served.emit({"version": _OLLAMA_VERSION, "served_by": "promptools"})


def list_models(served: ServedRequest) -> Steps[None]:
    """Respond with the list of the server's models."""
    models = yield from _models(served)
    if models is not None:
        yield from served.emit({"models": [model.encode_listed() for model in models]})


def list_running_models(served: ServedRequest) -> Steps[None]:
    """List all the server's models as running, because servers other than Ollama have loaded all their models."""
    models = yield from _models(served)
    if models is not None:
        yield from served.emit({"models": [model.encode_running() for model in models]})


def show_model(served: ServedRequest) -> Steps[None]:
    """Respond with the known facts about a model, or with 404 if the server does not list it.

    A llama.cpp server with a single model accepts any name.
    """
    if not served.requested_model:
        raise UsageError("model is required")
    models = yield from _models(served)
    if models is None:
        return
    named = next((model for model in models if served.model in model.names), None)
    if named is None and served.target.profile.kind == LLAMACPP and len(models) == 1:
        named = models[0]  # it serves any name
    if named is None:
        yield from served.emit({"error": f"model '{served.requested_model}' not found"}, 404)
        return
    profile = served.target.profile
    shown = ListedModel(named.entry, profile.family or named.family)
    yield from served.emit(shown.encode_shown(profile.context))


def _models(served: ServedRequest) -> Steps[list[ListedModel] | None]:
    """Return the server's models. If the server fails, send an error to the client and return None."""
    listed = yield from served.ask("models")
    if listed is None:
        return None
    models = (ListedModel(as_object(entry)) for entry in listed["data"])
    return [ListedModel(model.entry, family_of(model.name) or "") for model in models if model.name]


# Embeddings of a server other than Ollama, from its `/v1/embeddings`: `/api/embed`, and the older `/api/embeddings`.


def respond_embed(served: ServedRequest) -> Steps[None]:
    """Respond with the embeddings of one or several texts."""
    vectors = yield from _embed(served)
    if vectors is not None:
        embeddings, tokens = vectors
        body = {"model": served.requested_model, "embeddings": embeddings}
        figures = {"total_duration": int(served.state.seconds * 1e9), "prompt_eval_count": tokens}
        yield from served.emit({**body, **(figures if embeddings else {})})


def respond_embeddings(served: ServedRequest) -> Steps[None]:
    """Respond with the embedding of one text."""
    vectors = yield from _embed(served)
    if vectors is not None:
        embeddings, _ = vectors
        yield from served.emit({"embedding": embeddings[0] if embeddings else []})


def _embed(served: ServedRequest) -> Steps[tuple[list[Any], int] | None]:
    """Return the vectors and the number of tokens. If the server fails, send an error to the client and return None.

    A request without a text gets an empty list, because on Ollama such a request only loads the model.
    """
    texts = embedding_inputs(served.data)
    if not texts:
        return [], 0
    body: dict[str, Any] = {"model": served.model, "input": texts}
    if served.data.get("dimensions"):
        body["dimensions"] = served.data["dimensions"]
    reply = yield from served.ask("embeddings", body)
    if reply is None:
        return None
    entries = sorted(map(as_object, reply["data"]), key=lambda entry: as_count(entry.get("index")) or 0)
    tokens = as_count(as_object(reply.get("usage")).get("prompt_tokens")) or 0
    return [as_list(entry.get("embedding")) for entry in entries], tokens


# `/api/generate` with `raw` on a server other than Ollama: the prompt goes to `/v1/completions` as it is.
#
# There is no second attempt: the app wrote the prompt itself, and gets the text that the model adds to it, unparsed.


_MODE = "native"


def respond_raw(served: ServedRequest) -> Steps[None]:
    """Have the server continue the prompt, and respond with the continuation."""
    check_generate_request(served.data)
    state, profile = served.state, served.target.profile
    size = text_tokens(as_text(served.data.get("prompt")))
    room = MIN_ANSWER_TOKENS if profile.context is None else max(MIN_ANSWER_TOKENS, profile.context - size)
    body, notes = encode_as_completion(served.data, profile, room)
    state.notes += notes
    opened = yield from state.send(encode_json({**body, "model": served.model}), "completions")
    streamed = body["stream"] is True
    failure = yield from _relay(served, opened, streamed=streamed)
    state.record(_MODE, failure, None)
    if failure is not None:
        yield from respond_failure(state, failure, _MODE)


def _relay(served: ServedRequest, opened: Opened | Failed, *, streamed: bool) -> Steps[Failure | None]:
    """Relay the generated text, as lines if `streamed`, else as a whole at the end; return the failure, if any."""
    state = served.state
    if isinstance(opened, Failed):
        return failure_of_connection(opened)
    if not 200 <= opened.status < 300:
        return failure_of_status(opened, (yield from state.read_error()))
    reader = _RawReply(served, ReplyDecoder(is_stream(opened.headers, asked=streamed), "completions"))
    head = ResponseHead(opened.status, (("content-type", NDJSON),) if streamed else JSON)
    decoder, failed = reader.decoder, None
    while not (decoder.server_error or decoder.decode_error or decoder.limit_error or decoder.done):
        chunk = yield from state.read()
        if isinstance(chunk, Failed):
            return failure_of_connection(chunk, opened)
        lines = reader.lines(decoder.close() if chunk is None else decoder.feed(chunk))
        if streamed and lines:
            yield from state.emit(lines, lambda: head)
        if chunk is None:
            break
    failed = reader.failure(opened)
    if failed is None:
        yield from state.emit(reader.last_line(whole=not streamed), lambda: head)
    return failed


class _RawReply:
    """Reads a reply of `/v1/completions`, and writes its text as lines of `/api/generate`."""

    def __init__(self, served: ServedRequest, decoder: ReplyDecoder) -> None:
        self.decoder = decoder
        self._served = served
        self._text: list[str] = []

    def lines(self, deltas: Iterable[Delta]) -> bytes:
        """Return a line for each piece of text."""
        texts = [delta.content for delta in deltas if delta.content]
        self._text += texts
        return b"".join(b"%b\n" % encode_json(self._line(text)) for text in texts)

    def failure(self, opened: Opened) -> Failure | None:
        """At the end of the reply, return what is wrong with it, as a failure; None if nothing is wrong."""
        decoder = self.decoder
        if decoder.server_error:
            return failure_of_error(decoder.server_error, opened, decoder.body)
        if decoder.limit_error:
            return Failure("too_large", decoder.limit_error, opened=opened)
        if decoder.decode_error:
            return Failure("garbled", decoder.decode_error, opened=opened)
        if not decoder.finish_reasons:
            return Failure("cut", "the reply ended without a finish reason", opened=opened)
        return None

    def last_line(self, *, whole: bool) -> bytes:
        """Return the last line, with the usage. If `whole` is true, the line also holds all the text."""
        decoder, state = self.decoder, self._served.state
        reason = next(iter(decoder.finish_reasons.values()))
        line = self._line("".join(self._text) if whole else "")
        extra = decoder.last_extra or decoder.envelope.extra
        figures = encode_usage(decoder.usage, extra, state.seconds, state.phases(whole=whole))
        return encode_json({**line, "done": True, "done_reason": reason, **figures}) + (b"" if whole else b"\n")

    def _line(self, text: str) -> dict[str, object]:
        served = self._served
        envelope = Envelope(
            model=self.decoder.envelope.model or served.model, created=self.decoder.envelope.created or served.now
        )
        return encode_generated(encode_line(envelope, encode_message(text)))


# `/api/generate` on a server other than Ollama: a chat of one turn, a raw prompt, or only a request to load a model.


class GenerateApi(OllamaApi):
    """Implements Ollama's `/api/generate`, converted to Chat Completions for any server."""

    wire: Wire | None = None
    path = "/api/generate"

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Convert the request to Chat Completions."""
        check_generate_request(body)
        return decode_chat_request(encode_as_chat(body), profile)

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:
        """Return a writer of NDJSON lines if a stream is requested, else a writer of one JSON body."""
        return GenerateNdjsonWriter(request, begun=begun) if request.stream else GenerateJsonWriter(request)


GENERATE_API: ClientApi = GenerateApi()


def serve_generate(request: ClientRequest, context: Context) -> Exchange:
    """Serve a request to `/api/generate` whose body has been read."""
    data = parse_object(request.request.body)
    generated = replace(request, client_api=GENERATE_API)
    if data and not data.get("prompt"):
        return serve_route(generated, context, respond_generate_load)
    if data.get("raw") is True:
        return serve_route(generated, context, respond_raw)
    return run(generated, context)


def respond_chat_load(served: ServedRequest) -> Steps[None]:
    """Respond to a chat request without messages, which clients of Ollama send to load or unload a model.

    No model is loaded or unloaded, because the server is not Ollama and has already loaded its models.
    """
    yield from served.emit(_encode_load(served))


def respond_generate_load(served: ServedRequest) -> Steps[None]:
    """Respond to a generate request without a prompt, which clients of Ollama send to load or unload a model.

    No model is loaded or unloaded, because the server is not Ollama and has already loaded its models.
    """
    yield from served.emit(encode_generated(_encode_load(served)))


def _encode_load(served: ServedRequest) -> dict[str, Any]:
    reason = "unload" if is_unload_request(served.data) else "load"
    line = encode_line(Envelope(model=served.requested_model, created=served.now), encode_message())
    return {**line, "done": True, "done_reason": reason}


# The routes, as the proxy calls them.


_MAX_LOAD_REQUEST = 4096
"""Size in bytes above which a chat request is not parsed, because it is then assumed to have messages."""
_RUNNING = b"Ollama is running"
_ABSENT_STATUSES = frozenset({404, 405})
_INSTEAD = {
    "pull": "load the model with the server's own tools; `list` names those that it serves",
    "push": "publish the model with the tools of its registry",
    "create": "start the server with the model, or write what the Modelfile sets into the requests",
    "copy": "give the model another name in the config (`aliases`), or with the server's own options",
    "delete": "remove the model with the server's own tools",
    "blobs": "put the file where the server loads its models from",
}
"""Maps the name of each of Ollama's routes for managing models to advice on what to do instead of calling it."""


def serve_ollama_route(request: ClientRequest, context: Context) -> Exchange:
    """Respond to a request for a route other than chat; emit nothing if it should be forwarded unchanged."""
    state = ExchangeState(request, replace(context, observer=None))
    try:
        own = yield from _may_have_own_routes(state)
    except UsageError as error:
        yield from respond_bad_request(state, error)
        return None
    if own:
        return None
    name = request.request.url.partition("?")[0].rpartition("/api/")[2].split("/")[0]
    if name not in _SERVED_ROUTES:
        return (yield from serve_route(request, context, partial(_respond_unavailable, name)))
    read = yield ReadBody()
    assert isinstance(read, Body), read
    return (
        yield from _SERVED_ROUTES[name](replace(request, request=replace(request.request, body=read.data)), context)
    )


def serve_ollama_chat(request: ClientRequest, context: Context) -> Exchange:
    """Serve a chat request; one without messages is only a request to load or unload one of Ollama's models."""
    body = request.request.body
    data = parse_object(body) if len(body) <= _MAX_LOAD_REQUEST else {}
    return run(request, context) if not data or data.get("messages") else _serve_load(request, context)


def serve_root(request: ClientRequest, context: Context) -> Exchange:
    """Respond to a request for `/`, with which clients check that Ollama is running.

    The server's response is forwarded. If the server does not have this route, the response is the one Ollama sends.
    """
    state = ExchangeState(request, replace(context, observer=None))
    try:
        route = context.route(None, None)
    except UsageError as error:
        yield from respond_bad_request(state, error)
        return None
    state.url, state.headers = route.url, route.headers
    opened = yield from state.send(b"", "/", method=request.request.method)
    if isinstance(opened, Failed):
        yield from respond_no_answer(state, opened)
        return None
    if opened.status in _ABSENT_STATUSES:
        yield from state.abandon()
        head = ResponseHead(
            200, (("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(_RUNNING))))
        )
        yield from state.emit(b"" if request.request.method == "HEAD" else _RUNNING, lambda: head)
        return None
    head = ResponseHead(opened.status, opened.headers)
    yield from state.emit(b"", lambda: head)
    while isinstance(chunk := (yield from state.read()), bytes):
        yield from state.emit(chunk, lambda: head)
    if isinstance(chunk, Failed) and chunk.error is not None:
        raise chunk.error
    return None


def _serve_load(request: ClientRequest, context: Context) -> Exchange:
    state = ExchangeState(request, replace(context, observer=None))
    try:
        own = yield from _may_have_own_routes(state)
    except UsageError:
        own = True  # `run` reports the same error
    return (yield from run(request, context) if own else serve_route(request, context, respond_chat_load))


def _may_have_own_routes(state: ExchangeState) -> Steps[bool]:
    """Return whether the server may have Ollama's routes: it is Ollama, emulates Ollama, or could not be detected.

    If the body has been read, the model named in the body decides which server this is.
    """
    data = parse_object(state.request.body)
    route = yield from resolve_route(state, state.context.route(requested_model(data) or None, None), "")
    return _emulates_ollama(route.target, state.seen)


def _emulates_ollama(target: Target, seen: ServerInfo | None) -> bool:
    kind = target.profile.kind
    if kind != GENERIC:
        return kind == OLLAMA
    return may_serve_ollama(seen) if seen is not None and seen.answered else target.provider is None


def _respond_unavailable(name: str, served: ServedRequest) -> Steps[None]:
    """Respond with HTTP 501: the requested route manages Ollama's models, and the server is not Ollama."""
    root = served.state.request.url.partition("?")[0].rpartition("/api/")[0]
    kind = served.target.profile.kind
    title = "an OpenAI-compatible server" if kind == GENERIC else load_builtin(kind).title
    why = next((reason for reason in served.target.reasons if reason.startswith("kind ")), "")
    advice = _INSTEAD.get(name, "use the server's own API")
    message = (
        f"{'create_blob' if name == 'blobs' else name!r} needs an Ollama server, and {without_credentials(root)} is"
        f" {title} ({why}). Its models are managed in another way: {advice}"
    )
    yield from served.emit({"error": message}, 501)


def _served(respond: Callable[[ServedRequest], Steps[None]]) -> Callable[[ClientRequest, Context], Exchange]:
    return lambda request, context: serve_route(request, context, respond)


_SERVED_ROUTES: dict[str, Callable[[ClientRequest, Context], Exchange]] = {
    "generate": serve_generate,
    "tags": _served(list_models),
    "ps": _served(list_running_models),
    "show": _served(show_model),
    "version": _served(respond_version),
    "embed": _served(respond_embed),
    "embeddings": _served(respond_embeddings),
}
