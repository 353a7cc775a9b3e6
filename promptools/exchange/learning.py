"""Learn in which format a model's chat template writes calls, if the model's family is unknown.

Before the model's first request, `learn_format` renders a few conversations with the template, on the server or from a
file named in the config, within `LEARN_TIMEOUT` seconds. From the rendered texts it learns a table that describes the
format (`promptools.learning.learn`). A table is not used if its markers may well occur in prose. For any other
table, if a built-in dialect reads what the template writes, that dialect is used, because it includes repairs that no
template shows. If no built-in dialect reads it, calls are also read in the learned dialect.

A table is kept under the fingerprint of its template: a digest of the template's renderings of two conversations. The
fingerprint is the same on every server, even on one that does not show the template. `LearnedDialects` remembers the
tables, and which model uses which table; a `TableStore` may keep them beyond the life of the process.

A failure to learn never makes the request fail: the reason for the failure is noted in the trace.
"""

from __future__ import annotations

import hashlib
import json
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import promptools
from promptools import dialects
from promptools.dialects.own_dialects import OwnDialects, read_own
from promptools.dialects.sample import tiers
from promptools.dialects.table_file import DialectTable
from promptools.engine import parse
from promptools.errors import UsageError, clip
from promptools.exchange.detection import ANY_NAME_TTL, DEADLINE_SHARE, resolve_route
from promptools.exchange.response_writer import encode_json
from promptools.exchange.state import ExchangeState, api_base
from promptools.json_values import is_object, try_json, write_json
from promptools.modes.jinja_template import read_template, render_template
from promptools.profiles.server_detection import server_root
from promptools.types import Call, ServerInfo
from promptools.wire.chat_template import TEMPLATE_KEYS, decode_rendered_prompt, encode_template_request
from promptools.wire.json_body import as_list, as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptools.dialects.contract import Dialect
    from promptools.exchange.context import ClientRequest, Context, Route
    from promptools.exchange.effects import Ask, Request
    from promptools.exchange.state import Steps
    from promptools.learning import Learned
    from promptools.profiles import Profile
    from promptools.profiles.profile import TemplateEndpoint
    from promptools.schema import ToolLike


LEARN_TIMEOUT = 2.0
"""Time limit, in seconds, for learning from one template; it covers all the requests to the server together."""
ASKED_TIMEOUT = 60.0
"""Time limit, in seconds, for learning from one template if the user asked for it."""
RETRY_SECONDS = 60.0
"""Seconds until a template that could not be rendered is tried again, because its model may have been loading."""
LOADING = ("options", "num_ctx", "keep_alive")
"""Keys of a request that decide how Ollama loads a model.

Requests for learning contain them too, so that Ollama does not load the model twice.
"""
CERTAIN_TIERS = frozenset(("S", "A"))
"""The tiers (grades) of markers that are unlikely to occur in ordinary text.

Unless the user requested a learned table, it is used only if all its markers have one of these tiers.
"""
NOTHING_LEARNED = "# nothing was learned: "
"""The beginning of the text that is stored for a template from which no format could be learned."""


# What was learned.


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known about the format in which a chat template writes calls."""

    dialect: str | None
    """The name of the dialect in which the template writes calls, built-in or learned; None if it is not known."""
    why: str
    """A sentence that says how the dialect is known, or why it is not known."""
    own: OwnDialects | None = None
    """The learned dialect, if it is used."""


class Place(NamedTuple):
    """The key under which a finding about a template is remembered.

    `root` is the server's root URL. `given` is JSON: the variables that the config sets for the template.
    """

    root: str
    model: str
    given: str


class TableStore(Protocol):
    """Keeps tables (learned formats, as text) beyond the life of the process; its methods raise no exceptions."""

    def get(self, name: str) -> str | None:
        """Return the text kept under a name; None if there is none."""

    def put(self, name: str, text: str) -> None:
        """Keep a text under a name, if possible."""


class _Memory:
    """A store that keeps the text of tables in memory."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def get(self, name: str) -> str | None:
        return self._texts.get(name)

    def put(self, name: str, text: str) -> None:
        self._texts[name] = text


class LearnedDialects:
    """Remembers the learned format of each model on each server, and the tables that describe these formats.

    Only the latest `limit` models are remembered. Thread-safe, because each step is a single dict operation.
    """

    def __init__(self, store: TableStore | None = None, *, limit: int = 256) -> None:
        self._store: TableStore = _Memory() if store is None else store
        self._limit = limit
        self._findings: dict[Place, tuple[Finding, float]] = {}
        self._learning: dict[Place, object] = {}
        self._learns = True

    def without_learning(self) -> LearnedDialects:
        """Return a copy that learns nothing new, so that recorded replies can be replayed without a server."""
        known = copy(self)
        known._learns = False  # noqa: SLF001 - a copy of itself
        return known

    def get(self, place: Place, at: float) -> Finding | None:
        """Return what is known about a model's template, if it is still valid at the time `at`."""
        finding, until = self._findings.get(place, (None, 0.0))
        return finding if at < until else None

    def begin(self, place: Place) -> bool:
        """Claim the task of learning a model's format; return whether the claim succeeded.

        The claim fails if another exchange is learning the model's format, or if this object learns nothing. After a
        successful claim, `end` must be called.
        """
        mine = object()
        return self._learns and self._learning.setdefault(place, mine) is mine

    def end(self, place: Place, finding: Finding | None, until: float = inf) -> None:
        """Release the claim made by `begin`. Unless `finding` is None, remember it until the time `until`."""
        if finding is not None:
            self._findings.pop(place, None)
            self._findings[place] = finding, until
            for old in tuple(self._findings)[: -self._limit]:
                self._findings.pop(old, None)
        self._learning.pop(place, None)

    def read(self, name: str) -> str | None:
        """Return the text stored for a template: its table, or the reason why it has none.

        Returns None if nothing is stored.
        """
        return self._store.get(name)

    def keep(self, name: str, text: str) -> None:
        """Store the text for a template: its table, or the reason why it has none."""
        self._store.put(name, text)

    def dialects(self) -> OwnDialects:
        """Return all learned dialects in use, so that replies can be parsed again."""
        owns = [finding.own for finding, _ in tuple(self._findings.values()) if finding.own is not None]
        return read_own(tuple({table: None for own in owns for table in own.given}))


# The exchange's part.


def learn_format(state: ExchangeState, route: Route, body: Mapping[str, Any]) -> Steps[tuple[Route, Finding | None]]:
    """Learn the dialect of a request's model, if the dialect is not known.

    Returns the route with that dialect, and the finding, which is None if nothing is known.
    """
    learned = state.context.learned
    model = route.target.model or as_text(body.get("model"))
    if learned is None or state.seen is None or route.resolve is None or not _is_wanted(route.target.profile, model):
        return route, None
    state.url, state.headers = route.url, route.headers
    given = {key: value for key, value in route.target.defaults.items() if key in TEMPLATE_KEYS}
    root = server_root(api_base(route.url or state.request.url))
    place = Place(root, model, write_json(given, "the defaults of a model"))
    finding = learned.get(place, state.now)
    if finding is None:
        finding = yield from _find_out(
            state, learned, place, _renderer(state, route, {**given, **_loading(body)}, model)
        )
    if finding is None:
        return route, None
    state.seen = replace(state.seen, template_dialect=finding.dialect, template_why=finding.why)
    return replace(route, target=route.resolve(state.seen)), finding


def _is_wanted(profile: Profile, model: str) -> bool:
    """Return whether the dialect is unknown, is needed, and can be learned.

    It can be learned if the template can be rendered, either by promptools (from a file that the config names) or by
    the server. If the request names no model, only a llama.cpp server can render the template.
    """
    if not profile.learn or profile.family or profile.template_dialect or profile.accept is not None:
        return False
    if not {"native", "raw"} & {*profile.modes}:  # the template shows no tools, or is not used
        return False
    endpoint = profile.template_endpoint
    return profile.chat_template is not None or endpoint == "llamacpp" or (endpoint is not None and bool(model))


def _loading(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in LOADING if body.get(key) is not None}


def _find_out(
    state: ExchangeState, learned: LearnedDialects, place: Place, renderer: Callable[[Ask], TemplateRenderer]
) -> Steps[Finding | None]:
    """Learn a model's format. If another exchange is already learning it, return None without waiting."""
    if not learned.begin(place):
        return None
    left = state.policy.seconds_left(state.now)
    seconds = LEARN_TIMEOUT if left is None else min(LEARN_TIMEOUT, DEADLINE_SHARE * left)
    finding: Finding | None = None
    lasts = RETRY_SECONDS
    try:
        finding, lasts = yield from state.consult(partial(_study, learned, renderer), seconds)
    except Exception as error:  # noqa: BLE001 - a template, and what renders it, may raise anything
        finding = Finding(None, f"nothing was learned from the model's chat template: {clip(str(error))}")
    finally:
        learned.end(place, finding, state.now + lasts)
    if finding is not None:
        state.notes.append(finding.why)
    return finding


def _renderer(
    state: ExchangeState, route: Route, given: Mapping[str, Any], model: str
) -> Callable[[Ask], TemplateRenderer]:
    """Return a function that creates the renderer of a model's template, given an `Ask` to query the server."""
    profile = route.target.profile
    if profile.chat_template is not None:
        return lambda _: FileRenderer(str(profile.chat_template), given)
    assert profile.template_endpoint is not None, "something renders"
    num_ctx = profile.num_ctx if isinstance(profile.num_ctx, int) else None
    return partial(
        ServerRenderer, {"model": model, **given}, profile.template_endpoint, state.template_request, num_ctx=num_ctx
    )


# Rendering.


class TemplateRenderer(Protocol):
    """Renders conversations with the template of one model; passed to `promptools.learning.learn` as a function."""

    is_late: bool
    """Whether rendering failed because time ran out or the server did not answer."""
    lasts: float
    """Number of seconds for which the template is certain not to change."""

    @property
    def declared(self) -> Mapping[str, Any]:
        """What the model's config says about how to parse the model's replies; empty if unknown."""
        ...

    def __call__(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, **options: Any) -> str:
        """Return the prompt; raise `UsageError` if the template or the server rejects the conversation."""
        ...


class FileRenderer:
    """Renders conversations with the template file that the config names."""

    is_late = False
    lasts = inf

    def __init__(self, path: str, given: Mapping[str, Any]) -> None:
        self._path, self._given = path, given

    @property
    def declared(self) -> Mapping[str, Any]:
        """What `tokenizer_config.json` says about parsing replies; it is the template file itself, or is next to it."""
        return read_template(Path(self._path).expanduser()).declared

    def __call__(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, **options: Any) -> str:
        """Return the prompt."""
        kwargs = {**as_object(self._given.get("chat_template_kwargs")), **options}
        return render_template(self._path, _body({**self._given, "chat_template_kwargs": kwargs}, messages, tools, {}))


class ServerRenderer:
    """Renders conversations on the model's server, with one request for each conversation.

    llama.cpp and Ollama treat a final assistant message as the beginning of the reply, and omit its calls. So this
    class rejects a conversation that ends with an assistant message. Ollama always renders the beginning of the reply
    after the conversation.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        endpoint: TemplateEndpoint,
        request: Callable[[bytes, str], Request],
        ask: Ask,
        *,
        num_ctx: int | None = None,
    ) -> None:
        self.declared: Mapping[str, Any] = {}
        self._given, self._request, self._ask, self._num_ctx = given, request, ask, num_ctx
        self._endpoint: TemplateEndpoint = endpoint
        self.is_late = False
        # a llama.cpp server accepts any model name, and may have another model by the next time
        self.lasts = ANY_NAME_TTL if endpoint == "llamacpp" else inf

    def __call__(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, **options: Any) -> str:
        """Return the prompt."""
        self._refuse_inexpressible(messages, options)
        encoded = encode_template_request(
            _body(self._given, messages, tools, options), self._endpoint, num_ctx=self._num_ctx
        )
        if encoded is None:
            raise UsageError("the server's API has no place for a part of the conversation")
        answer = self._ask(self._request(encode_json(encoded.body), encoded.path))
        if answer is None:
            self.is_late = True
            raise UsageError("the server rendered nothing in time")
        if answer.status != 200:
            raise UsageError(f"the server renders no such conversation: HTTP {answer.status}")
        prompt = decode_rendered_prompt(try_json(answer.body), self._endpoint)
        if prompt is None or prompt.text is None:
            raise UsageError("the server returns no text of a rendered template")
        return prompt.text

    def _refuse_inexpressible(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
        if self._endpoint != "tokenize" and messages and messages[-1].get("role") == "assistant":
            raise UsageError("the server takes an assistant's message at the end for the beginning of the reply")
        if self._endpoint == "ollama" and options.keys() - {"add_generation_prompt"}:
            raise UsageError("Ollama's API has no place for options of a template")


def _body(
    given: Mapping[str, Any],
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the request body for a conversation; options that the API lacks become template variables."""
    own = {key: value for key, value in options.items() if key in TEMPLATE_KEYS}
    kwargs = {**as_object(given.get("chat_template_kwargs")), **{key: options[key] for key in options.keys() - own}}
    return {
        **given,
        **own,
        **({"chat_template_kwargs": kwargs} if kwargs else {}),
        "messages": [_with_texts(message) for message in messages],
        **({"tools": list(tools)} if tools else {}),
    }


def _with_texts(message: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a message with its calls' arguments as JSON text, as in OpenAI's API, because servers parse that text."""
    calls = as_list(message.get("tool_calls"))
    return {**message, "tool_calls": [_with_text(as_object(call)) for call in calls]} if calls else {**message}


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = as_object(call.get("function"))
    arguments = function.get("arguments")
    text = json.dumps(arguments, ensure_ascii=False) if is_object(arguments) else arguments
    return {**call, "function": {**function, "arguments": text}}


# Learning.


def _study(learned: LearnedDialects, renderer: Callable[[Ask], TemplateRenderer], ask: Ask) -> tuple[Finding, float]:
    """Return the finding about a template, stored or newly learned, and for how many seconds it is valid."""
    render = renderer(ask)
    name = fingerprint(render, render.declared)
    text = learned.read(name)
    finding = None if text is None else _read_table(name, text)
    if finding is not None:
        return finding, render.lasts
    text = _learn_table(render, name)
    if render.is_late:
        return Finding(None, "nothing was learned from the model's chat template in time"), RETRY_SECONDS
    learned.keep(name, text)
    finding = _read_table(name, text)
    assert finding is not None, "what was learned can be read"
    return finding, render.lasts


def _learn_table(render: TemplateRenderer, name: str) -> str:
    """Return the table learned from a template, as TOML; if none is learned, return the reason as a TOML comment."""
    from promptools.learning import learn  # few models need it

    try:
        return learn(render, name=name, config=render.declared).toml
    except UsageError as error:
        return f"{NOTHING_LEARNED}{clip(str(error))}\n"


def _read_table(name: str, text: str) -> Finding | None:
    """Read the text that is stored for a template; return the finding it describes, or None if it cannot be read."""
    if text.startswith(NOTHING_LEARNED):
        return Finding(
            None, f"nothing was learned from the model's chat template: {text[len(NOTHING_LEARNED) :].strip()}"
        )
    try:
        own = read_own((DialectTable(f"{name}.toml", text),))
        dialect = own.by_name[name]
    except (UsageError, KeyError):  # the table is from another version, or damaged
        return None
    return judge(dialect, own)


def judge(dialect: Dialect, own: OwnDialects) -> Finding:
    """Decide whether to use the learned `dialect`, or a built-in one that reads the same calls; return the finding."""
    if not {*tiers(dialect)} <= CERTAIN_TIERS:
        why = "such calls could be ordinary text, so a table for them is used only if it is requested"
        return Finding(None, f"the format of calls in the model's chat template is not used: {why}")
    known = known_format(dialect)
    if known is not None:
        return Finding(known, f"the model's chat template writes calls as {known!r} does")
    return Finding(dialect.name, f"the format of calls was learned from the model's chat template: {dialect.name}", own)


def _tool(name: str, **types: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": "Do it.", "parameters": parameters}}


def _call(number: int, name: str, arguments: dict[str, Any]) -> Call:
    return Call(f"call0000{number}", name, arguments, json.dumps(arguments))


_TOOLS: list[ToolLike] = [
    _tool("find_path", place="string", steps="integer", exact="boolean"),
    _tool("send_note", lines="array", to="object"),
    _tool("list_all"),
]
_CALLS = (
    _call(1, "find_path", {"place": "the harbour", "steps": 3, "exact": True}),
    _call(2, "send_note", {"lines": ["first", "second\nthird"], "to": {"name": "Ada", "copies": [1, 2.5, None]}}),
    _call(3, "list_all", {}),
)
"""Calls with values of every JSON type, which are rendered to recognize a format."""


def known_format(dialect: Dialect) -> str | None:
    """Return the name of a built-in dialect that reads the sample calls as `dialect` writes them; None if none does.

    The calls must be read without fixes. A dialect without distinctive markers, such as bare JSON, is never returned.
    """
    texts = [dialect.render_calls([call]) for call in _CALLS]
    replies = [parse(text, _TOOLS) for text in texts]
    read = [call for reply in replies for call in reply.calls]
    if any(call.fixes for call in read) or any(reply.content.strip() for reply in replies):
        return None
    if [(call.name, call.arguments) for call in read] != [(call.name, call.arguments) for call in _CALLS]:
        return None
    name = read[0].dialect
    return name if CERTAIN_TIERS & {*tiers(dialects.get(name))} else None


def fingerprint(render: Callable[..., str], declared: Mapping[str, Any] | None = None) -> str:
    """Return the name of a template's table, such as `learned_0123456789ab`, from renderings of two conversations.

    The name contains a digest of the renderings, of the version of promptools, and of `declared`, which is what the
    model's config says about how to parse replies. Raises `UsageError` if the template renders neither conversation.
    """
    made: list[str] = []
    problem: UsageError | None = None
    for messages in (_conversation(_CALLS[:1]), _conversation(_CALLS[:2], "Let me see.")):
        try:
            made.append(render(messages, _TOOLS))
        except UsageError as error:
            problem = error
            made.append("")
    if problem is not None and not any(made):
        raise problem
    told = [write_json(declared, "the config")] if declared else []
    digest = hashlib.sha256(json.dumps([promptools.__version__, *made, *told]).encode())
    return f"learned_{digest.hexdigest()[:12]}"


def _conversation(calls: Sequence[Call], content: str = "") -> list[dict[str, Any]]:
    written = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    return [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": content, "tool_calls": written},
        *({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": "done"} for call in calls),
    ]


def learn_at_server(request: ClientRequest, context: Context, model: str, name: str) -> Steps[Learned]:
    """Learn how a model's template writes calls, even if the format is already known, within `ASKED_TIMEOUT` seconds.

    Raises `UsageError` if nothing can be learned, or if the server has no known endpoint that renders the template.
    """
    state = ExchangeState(request, context)
    route = yield from resolve_route(state, context.route(model or None, None), model)
    profile = route.target.profile
    if profile.template_endpoint is None:
        raise UsageError(f"no endpoint is known at which a server of kind {profile.kind!r} renders its chat template")
    state.url, state.headers = route.url, route.headers
    renderer = _renderer(state, route, {}, model)

    def work(ask: Ask) -> Learned:
        from promptools.learning import learn

        return learn(renderer(ask), name=name)

    return (yield from state.consult(work, ASKED_TIMEOUT))


def probe_format(request: ClientRequest, context: Context, model: str) -> Steps[tuple[Route, ServerInfo]]:
    """Probe a request's server, and learn the format of the model's calls; return the route and the probe result.

    The format is learned only if it is unknown. The request itself is not sent.
    """
    state = ExchangeState(request, context)
    route = yield from resolve_route(state, context.route(model or None, None), model)
    route, _ = yield from learn_format(state, route, {"model": model})
    return route, state.seen or ServerInfo(why="what server it is has been settled")
