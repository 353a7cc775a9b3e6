"""Detect the kind of a server: build the probe requests, and read the responses. This module does no I/O.

A kind is inferred only from what the server itself says, in a form that no other server is known to use, and never from
a port, a host or a model's name. If the responses point to two kinds, as those of a gateway or an emulating server may,
no kind is inferred, and the server counts as `openai-compatible`.

A probe has up to three steps, each a pair of functions; the caller sends the requests and keeps the results:

1. `server_requests` and `read_server` find the kind. If the kind is configured, `kind_requests` and `read_kind` take
   their place; they find the version only if facts depend on it.
2. `version_requests` and `read_version` find the version with requests that may be sent only to a known kind of server.
3. `read_models` reads the models from the responses of the first steps, and `with_model` picks the model of a request.
   Ollama is asked about that model by `model_requests` and `read_model`.

`is_server_final` and `is_kind_final` say whether a result may be cached. `detected_facts` turns a result into facts of
a profile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from promptools.json_values import try_json
from promptools.patterns import lazy_pattern
from promptools.profiles.model_family import (
    PARSER_FIELD,
    SGLANG_PATHS,
    FamilyFinding,
    ModelDescription,
    describe_models,
    describe_ollama_model,
    family_by_name,
    find_description,
    find_family,
    find_size,
    nonempty_string,
    objects_under,
    token_count,
)
from promptools.profiles.tables import is_array, is_table
from promptools.types import ServerInfo

OLLAMA, VLLM, LLAMACPP, SGLANG, LMSTUDIO = "ollama", "vllm", "llamacpp", "sglang", "lmstudio"

MODELS_PATH = "/models"
PROBE_PATHS = ("/api/version", "/version", "/props", "/api/v0/models", "/api/v1/models")
"""Paths below the server's root: one each of Ollama, vLLM and llama.cpp, and two of LM Studio."""
SHOW_PATH = "/api/show"
PATHS_BY_KIND: Mapping[str, tuple[str, ...]] = {
    OLLAMA: (),
    VLLM: ("/version", MODELS_PATH),
    LLAMACPP: ("/props", MODELS_PATH),
    SGLANG: (MODELS_PATH,),
    LMSTUDIO: ("/api/v0/models",),
}
"""Maps each kind of server to the paths requested for its models, and for its version if facts depend on that."""

KIND_BY_OWNER = {"vllm": VLLM, "llamacpp": LLAMACPP, "sglang": SGLANG}
"""Maps a value of `owned_by` to the kind of server. The value counts only if all listed models have it."""
OLLAMA_EMULATORS = frozenset(("docker", "koboldcpp", "lemonade", "llama-swap"))
"""Values of `owned_by` that show that a server is not Ollama, although it has Ollama's paths."""

_NUMBERED = lazy_pattern(r"[0-9]+\.[0-9]")
_BUILD = lazy_pattern(r"b([0-9]+)")
_STATUS = lazy_pattern(r"HTTP ([0-9]+)")
_TRANSIENT_STATUSES = frozenset((401, 403, 408, 429))
NOT_IMPLEMENTED = 501
"""A status that means the same as 404: the server will never have this path."""


class ProbeRequest(NamedTuple):
    """A small request that helps to find out what a server is."""

    method: str
    url: str
    label: str
    """The request as the trace shows it: the method and the path below the server's root."""
    body: bytes = b""


class ProbeResponse(NamedTuple):
    """A server's response to a probe request; a very long body is truncated."""

    status: int
    body: bytes


def server_root(base_url: str) -> str:
    """Return the server's root: its base URL without a final `/v1`, unless `v1` is the name of the host."""
    base = base_url.rstrip("/")
    root = base.removesuffix("/v1")
    return base if root.endswith(":/") else root


def server_requests(base_url: str) -> tuple[ProbeRequest, ...]:
    """Return the requests that find out the kind of a server."""
    return _get_requests(base_url, (*PROBE_PATHS, MODELS_PATH))


def kind_requests(base_url: str, kind: str) -> tuple[ProbeRequest, ...]:
    """Return the requests for the version and the models of a server of a known kind."""
    return _get_requests(base_url, PATHS_BY_KIND[kind])


def _get_requests(base_url: str, paths: Sequence[str]) -> tuple[ProbeRequest, ...]:
    """Return GET requests for paths below the server's root, except `/models`, which is below the base URL."""
    base, root = base_url.rstrip("/"), server_root(base_url)
    below = (base.removeprefix(root) + path if path == MODELS_PATH else path for path in paths)
    return tuple(ProbeRequest("GET", root + path, f"GET {path}") for path in below)


def version_requests(base_url: str, seen: ServerInfo) -> tuple[ProbeRequest, ...]:
    """Return the version requests that may be sent only to a known kind of server; empty for most kinds."""
    if seen.kind != SGLANG:
        return ()
    return tuple(ProbeRequest("GET", server_root(base_url) + path, f"GET {path}") for path in SGLANG_PATHS)


def model_requests(base_url: str, model: str) -> tuple[ProbeRequest, ...]:
    """Return the request that asks Ollama what a model can do."""
    body = json.dumps({"model": model}).encode()
    return (ProbeRequest("POST", server_root(base_url) + SHOW_PATH, f"POST {SHOW_PATH}", body),)


def read_server(requests: Sequence[ProbeRequest], responses: Sequence[ProbeResponse | None]) -> ServerInfo:
    """Infer the kind of a server from the responses to `server_requests`."""
    asked = _outcomes(requests, responses)
    if all(answer is None for answer in responses):
        return ServerInfo(asked=asked, why="nothing answered in time")
    tables = _bodies(requests, responses)
    models = tables[requests[-1].label]
    owner = _owner(models)
    signs: dict[str, tuple[str, str | None]] = {}
    for kind, (sign, version_in) in _KIND_TESTS.items():
        why = sign(tables, owner, responses[-1])
        if why:
            signs[kind] = (why, version_in(tables))
    if len(signs) != 1:
        listed = " and ".join(f"{kind} ({why})" for kind, (why, _) in signs.items())
        why = f"the answers name more than one kind: {listed}" if signs else "no answer says what server it is"
        return ServerInfo(asked=asked, why=why)
    (kind, (why, version)) = next(iter(signs.items()))
    return ServerInfo(kind, version, context=_listed_context(models), asked=asked, why=why)


def read_kind(kind: str, requests: Sequence[ProbeRequest], responses: Sequence[ProbeResponse | None]) -> ServerInfo:
    """Read the responses to `kind_requests`, for a server of a known kind."""
    tables = _bodies(requests, responses)
    version = _KIND_TESTS[kind][1](tables)
    models = tables[requests[-1].label] if requests else {}
    asked = _outcomes(requests, responses)
    return ServerInfo(kind, version, context=_listed_context(models), asked=asked, why=_KIND_CONFIGURED)


def read_models(
    requests: Sequence[ProbeRequest], responses: Sequence[ProbeResponse | None]
) -> tuple[ModelDescription, ...]:
    """Return the descriptions of models that the server's responses to a probe contain."""
    return describe_models(_bodies(requests, responses))


def with_model(seen: ServerInfo, listed: Sequence[ModelDescription], model: str) -> ServerInfo:
    """Return a copy of `seen` that includes what the server says about the model that it serves as `model`."""
    description = find_description(listed, model)
    if description is None:
        return with_family(seen, family_by_name(model))
    return replace(
        with_family(seen, find_family(description, model)),
        context=description.context or seen.context,
        template_tools=description.renders_tools,
        parameters=find_size(description, model),
    )


def with_family(seen: ServerInfo, finding: FamilyFinding) -> ServerInfo:
    """Return a copy of `seen` that includes the family of a model, and how the family was found."""
    return replace(
        seen,
        family=finding.family,
        family_by=finding.by,
        family_why=finding.why,
        family_evidence=finding.evidence,
    )


def is_kind_final(responses: Sequence[ProbeResponse | None]) -> bool:
    """Return whether the responses to `kind_requests` are final. If so, the result can be cached."""
    return all(
        answer is not None and answer.status not in _TRANSIENT_STATUSES and not _is_down(answer.status)
        for answer in responses
    )


def is_server_final(seen: ServerInfo, responses: Sequence[ProbeResponse | None]) -> bool:
    """Return whether the result of `server_requests` is final. If so, it can be cached.

    A server that is still starting, rejects the key or is busy may answer differently the next time.
    """
    if seen.kind is not None:
        return True
    models = responses[-1]
    if models is None:
        return any(answer is not None for answer in responses)
    return models.status not in _TRANSIENT_STATUSES and not _is_down(models.status)


def _is_down(status: int) -> bool:
    return status >= 500 and status != NOT_IMPLEMENTED


def read_version(
    seen: ServerInfo, requests: Sequence[ProbeRequest], responses: Sequence[ProbeResponse | None]
) -> ServerInfo:
    """Return a copy of `seen` that includes the version in the responses to `version_requests`."""
    versions = [nonempty_string(_json_object(answer).get("version")) for answer in responses]
    version = next(filter(None, versions), seen.version)
    return replace(seen, version=version, asked=(*seen.asked, *_outcomes(requests, responses)))


def read_model(
    seen: ServerInfo, requests: Sequence[ProbeRequest], responses: Sequence[ProbeResponse | None], model: str = ""
) -> ServerInfo:
    """Return a copy of `seen` that includes what Ollama's response to `model_requests` says about the model."""
    asked = (*seen.asked, *_outcomes(requests, responses))
    table = _json_object(responses[0])
    shown = describe_ollama_model(table)
    parser = dict(shown.kind_names).get(PARSER_FIELD)
    seen = replace(
        with_family(seen, find_family(shown, model)),
        num_ctx=shown.context,
        parser=parser,
        parameters=find_size(shown, model),
        asked=asked,
    )
    listed: Any = table.get("capabilities")
    if not is_array(listed):
        return seen
    capabilities = tuple(name for name in listed if isinstance(name, str))
    return replace(seen, capabilities=capabilities, context=_context(table.get("model_info")))


def may_serve_ollama(seen: ServerInfo) -> bool:
    """Return whether a server of unknown kind may have Ollama's own routes.

    True if the server answered the request for Ollama's version with 200, or if it may answer differently the next
    time.
    """
    outcome = dict(seen.asked).get(f"GET {PROBE_PATHS[0]}", _NO_RESPONSE)
    status = _STATUS.fullmatch(outcome)
    if status is None:
        return outcome == _NO_RESPONSE
    return status[1] == "200" or int(status[1]) in _TRANSIENT_STATUSES or _is_down(int(status[1]))


def detected_facts(seen: ServerInfo, modes: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    """Yield `(profile key, value, reason)` for each fact that a server states.

    `modes` are the modes according to the facts found so far.
    """
    if seen.template_dialect is not None:
        yield "template_dialect", seen.template_dialect, seen.template_why
    if seen.parser is not None:
        yield "dialect", "json", f"PARSER {seen.parser} reads replies to requests without tools too"
    if not seen.template_tools:
        yield "modes", _not_native(modes), "GET /props: the model's chat template shows it no tools"
    if seen.capabilities is None:
        if seen.context is not None:
            yield (
                "context",
                seen.context,
                _CONTEXT_SOURCES.get(seen.kind or "", "max_model_len, in the server's list of models"),
            )
        return
    listed = f"{SHOW_PATH} lists {', '.join(seen.capabilities) or 'nothing'} as the model's capabilities"
    if "tools" not in seen.capabilities:
        yield "modes", _not_native(modes), f"{listed}, and no tools"
    if "thinking" not in seen.capabilities:
        yield "thinking", False, f"{listed}, and no thinking"
    if seen.context is not None:
        yield "num_ctx_limit", seen.context, f"the context length of the model, from {SHOW_PATH}"
    if seen.num_ctx is not None or seen.context is not None:
        yield (
            "context",
            seen.num_ctx or seen.context,
            f"the {'num_ctx' if seen.num_ctx else 'context length'} from {SHOW_PATH}",
        )


def _not_native(modes: Sequence[str]) -> tuple[str, ...]:
    return tuple(mode for mode in modes if mode not in {"native", "raw"}) or ("prompt",)


# -- reading responses

_NO_RESPONSE = "no answer"
_KIND_CONFIGURED = "the server is named; only its version and its models were asked about"
_CONTEXT_SOURCES = {LLAMACPP: "n_ctx, from GET /props", LMSTUDIO: "loaded_context_length, from GET /api/v0/models"}
_Bodies = Mapping[str, dict[str, Any]]
_KindTest = Callable[[_Bodies, str | None, ProbeResponse | None], str]


def _outcomes(
    requests: Sequence[ProbeRequest], responses: Sequence[ProbeResponse | None]
) -> tuple[tuple[str, str], ...]:
    """Return `(request, outcome)` for each request of a probe, to be shown in the trace of a reply.

    Bodies are left out, since they may contain secrets.
    """
    return tuple(
        (
            asked.label,
            _NO_RESPONSE
            if answer is None
            else f"HTTP {answer.status}{'' if _is_readable(answer) else ', not a JSON object'}",
        )
        for asked, answer in zip(requests, responses, strict=True)
    )


def _is_readable(answer: ProbeResponse) -> bool:
    return answer.status != 200 or bool(_json_object(answer))


def _bodies(requests: Sequence[ProbeRequest], responses: Sequence[ProbeResponse | None]) -> _Bodies:
    return {question.label: _json_object(answer) for question, answer in zip(requests, responses, strict=True)}


def _json_object(answer: ProbeResponse | None) -> dict[str, Any]:
    """Return the JSON object in a response; empty if the body is something else, or the status is not 200."""
    if answer is None or answer.status != 200:
        return {}
    value = try_json(answer.body)
    return value if is_table(value) else {}


def _owner(models: Mapping[str, Any]) -> str | None:
    """Return the `owned_by` that all listed models share; None if they differ, or no model is listed."""
    owners = {nonempty_string(model.get("owned_by")) for model in objects_under(models, "data")}
    return owners.pop() if len(owners) == 1 else None


def _sole_version(table: Mapping[str, Any]) -> str | None:
    """Return the version in a response that contains nothing but a version; None for any other response."""
    version = nonempty_string(table.get("version"))
    return version if version and len(table) == 1 and _NUMBERED.match(version) else None


def _ollama(bodies: _Bodies, owner: str | None, _: ProbeResponse | None) -> str:
    version = _sole_version(bodies["GET /api/version"])
    return "" if not version or owner in OLLAMA_EMULATORS else "GET /api/version answers as Ollama does"


def _vllm(bodies: _Bodies, owner: str | None, models: ProbeResponse | None) -> str:
    if KIND_BY_OWNER.get(owner or "") == VLLM:
        return "its models are owned by vllm"
    silent = models is None or models.status in _TRANSIENT_STATUSES
    # LocalAI has this path too, but its version begins with v; if the list of models can be read, the list decides
    return "GET /version answers as vLLM does" if silent and _sole_version(bodies["GET /version"]) else ""


def _llamacpp(bodies: _Bodies, owner: str | None, _: ProbeResponse | None) -> str:
    props = bodies["GET /props"]
    if nonempty_string(props.get("build_info")) and is_table(props.get("default_generation_settings")):
        return "GET /props answers as llama.cpp does"
    return "its models are owned by llamacpp" if KIND_BY_OWNER.get(owner or "") == LLAMACPP else ""


def _sglang(_bodies: _Bodies, owner: str | None, _: ProbeResponse | None) -> str:
    return "its models are owned by sglang" if KIND_BY_OWNER.get(owner or "") == SGLANG else ""


def _lmstudio(bodies: _Bodies, _owner: str | None, _: ProbeResponse | None) -> str:
    if any(
        {"compatibility_type", "state"} <= model.keys() for model in objects_under(bodies["GET /api/v0/models"], "data")
    ):
        return "GET /api/v0/models answers as LM Studio does"
    listed = objects_under(bodies["GET /api/v1/models"], "models")
    return (
        "GET /api/v1/models answers as LM Studio does" if any("loaded_instances" in model for model in listed) else ""
    )


def _build(bodies: _Bodies) -> str | None:
    """Return llama.cpp's build in the form of a release name, such as `b10488`.

    Return None for build 0, which means that the build is unknown.
    """
    match = _BUILD.match(nonempty_string(bodies["GET /props"].get("build_info")) or "")
    return match[0] if match and int(match[1]) else None


def _context(info: Any) -> int | None:
    """Return the context length in `model_info`, in tokens; the key for it begins with the model's architecture."""
    return token_count(info.get(f"{info.get('general.architecture')}.context_length")) if is_table(info) else None


def _listed_context(models: Mapping[str, Any]) -> int | None:
    """Return the smallest context size of the listed models, in tokens (vLLM, SGLang); None if none is stated."""
    lengths = [token_count(model.get("max_model_len")) for model in objects_under(models, "data")]
    return min((length for length in lengths if length is not None), default=None)


_KIND_TESTS: dict[str, tuple[_KindTest, Callable[[_Bodies], str | None]]] = {
    OLLAMA: (_ollama, lambda bodies: _sole_version(bodies.get("GET /api/version", {}))),
    VLLM: (_vllm, lambda bodies: nonempty_string(bodies["GET /version"].get("version"))),
    LLAMACPP: (_llamacpp, _build),
    SGLANG: (_sglang, lambda _: None),
    LMSTUDIO: (_lmstudio, lambda _: None),
}
"""For each kind, two functions: one returns why a server is of this kind (or ""), the other returns its version."""
