"""Detect what a server is: the probe requests to send, and how to read the responses. This module does no I/O.

A kind is concluded only from what the server itself says, in a form that no other server is known to use; never from
a port, a host or a model's name. Where the responses point to two kinds (a gateway, a server that emulates another)
none is concluded, and the server counts as `openai-compatible`.

A probe has up to three steps, each a pair of functions; the caller sends the requests and keeps the results:

1. `about_server` and `read_server` find the kind. Where the kind is configured, `about_kind` and `read_kind` take their
   place, and find the version only where facts depend on it.
2. `about_version` and `read_version` ask what may be asked only of a known kind.
3. `read_models` reads the models from the same responses, `of_model` picks the one of a request; Ollama is asked for it
   by `about_model` and `read_model`.

`is_certain` and `is_settled` say whether a result may be cached. `facts_of` turns it into facts of a profile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from promptools.profiles.shape import is_array, is_table
from promptools.profiles.told import PARSER, Told, chosen, family_told, items, model_shown, models_told, text, tokens
from promptools.types import Seen

OLLAMA, VLLM, LLAMACPP, SGLANG, LMSTUDIO = "ollama", "vllm", "llamacpp", "sglang", "lmstudio"

MODELS = "/models"
ABOUT = ("/api/version", "/version", "/props", "/api/v0/models", "/api/v1/models")
"""Paths below the server's root: of Ollama, vLLM, llama.cpp and, twice, LM Studio."""
SGLANG_ABOUT = ("/server_info", "/get_server_info")
"""Asked only of a server known as SGLang: the response costs its scheduler a round, and holds its arguments."""
SHOW = "/api/show"
NAMED: Mapping[str, tuple[str, ...]] = {
    OLLAMA: (),
    VLLM: ("/version", MODELS),
    LLAMACPP: ("/props", MODELS),
    SGLANG: (MODELS,),
    LMSTUDIO: ("/api/v0/models",),
}
"""Paths asked of a server of a known kind: its version where facts depend on it, and its models."""

OWNERS = {"vllm": VLLM, "llamacpp": LLAMACPP, "sglang": SGLANG}
"""Kinds by the `owned_by` of every listed model."""
PLAYING_OLLAMA = frozenset(("docker", "koboldcpp", "lemonade", "llama-swap"))
"""Values of `owned_by` of servers that emulate Ollama's paths."""

_NUMBERED = re.compile(r"[0-9]+\.[0-9]")
_BUILD = re.compile(r"b([0-9]+)")
_UNSURE = frozenset((401, 403, 408, 429))
NOT_IMPLEMENTED = 501
"""Means what a 404 means, and is permanent."""


class Question(NamedTuple):
    """One request of a probe."""

    method: str
    url: str
    words: str
    """The request as the trace shows it: the method and the path below the server's root."""
    body: bytes = b""


class Answer(NamedTuple):
    """A server's response to a probe; a very long body is truncated."""

    status: int
    body: bytes


def root_of(base_url: str) -> str:
    """Return the server's root: its base URL without the final `/v1`, unless that is the host's name."""
    base = base_url.rstrip("/")
    root = base.removesuffix("/v1")
    return base if root.endswith(":/") else root


def about_server(base_url: str) -> tuple[Question, ...]:
    """Return the requests that find out what kind of server it is."""
    return _questions(base_url, (*ABOUT, MODELS))


def about_kind(base_url: str, kind: str) -> tuple[Question, ...]:
    """Return the requests for the version and the models of a server of a known kind."""
    return _questions(base_url, NAMED[kind])


def _questions(base_url: str, paths: Sequence[str]) -> tuple[Question, ...]:
    """Return GET requests for paths below the server's root; `/models` is below its base URL."""
    base, root = base_url.rstrip("/"), root_of(base_url)
    below = (base.removeprefix(root) + path if path == MODELS else path for path in paths)
    return tuple(Question("GET", root + path, f"GET {path}") for path in below)


def about_version(base_url: str, seen: Seen) -> tuple[Question, ...]:
    """Return the requests that only a known kind of server may be sent."""
    if seen.kind != SGLANG:
        return ()
    return tuple(Question("GET", root_of(base_url) + path, f"GET {path}") for path in SGLANG_ABOUT)


def about_model(base_url: str, model: str) -> tuple[Question, ...]:
    """Return the request for what a model of Ollama can do."""
    body = json.dumps({"model": model}).encode()
    return (Question("POST", root_of(base_url) + SHOW, f"POST {SHOW}", body),)


def read_server(questions: Sequence[Question], answers: Sequence[Answer | None]) -> Seen:
    """Conclude the kind of a server from the responses to `about_server`."""
    asked = _asked(questions, answers)
    if all(answer is None for answer in answers):
        return Seen(asked=asked, why="nothing answered in time")
    tables = _said(questions, answers)
    models = tables[questions[-1].words]
    owner = _owner(models)
    signs: dict[str, tuple[str, str | None]] = {}
    for kind, (sign, version_in) in _KINDS.items():
        why = sign(tables, owner, answers[-1])
        if why:
            signs[kind] = (why, version_in(tables))
    if len(signs) != 1:
        listed = " and ".join(f"{kind} ({why})" for kind, (why, _) in signs.items())
        why = f"the answers name more than one kind: {listed}" if signs else "no answer says what server it is"
        return Seen(asked=asked, why=why)
    (kind, (why, version)) = next(iter(signs.items()))
    return Seen(kind, version, context=_listed_context(models), asked=asked, why=why)


def read_kind(kind: str, questions: Sequence[Question], answers: Sequence[Answer | None]) -> Seen:
    """Read the responses of a server of a known kind to `about_kind`."""
    tables = _said(questions, answers)
    version = _KINDS[kind][1](tables)
    models = tables[questions[-1].words] if questions else {}
    asked = _asked(questions, answers)
    return Seen(kind, version, context=_listed_context(models), asked=asked, why=_NAMED)


def read_models(questions: Sequence[Question], answers: Sequence[Answer | None]) -> tuple[Told, ...]:
    """Return what the responses say about the server's models."""
    return models_told(_said(questions, answers))


def of_model(seen: Seen, listed: Sequence[Told], model: str) -> Seen:
    """Add what the server says about the model that serves a name."""
    told = chosen(listed, model)
    if told is None:
        return seen
    family, why = family_told(told, model)
    return replace(seen, family=family, family_why=why, context=told.context or seen.context, template_tools=told.tools)


def is_settled(answers: Sequence[Answer | None]) -> bool:
    """Return whether the result of `about_kind` is final, so that it can be cached."""
    return all(
        answer is not None and answer.status not in _UNSURE and not _is_down(answer.status) for answer in answers
    )


def is_certain(seen: Seen, answers: Sequence[Answer | None]) -> bool:
    """Return whether the result of `about_server` is final, so that it can be cached.

    A server that is not up yet, rejects the key or is busy may say more the next time.
    """
    if seen.kind is not None:
        return True
    models = answers[-1]
    if models is None:
        return any(answer is not None for answer in answers)
    return models.status not in _UNSURE and not _is_down(models.status)


def _is_down(status: int) -> bool:
    return status >= 500 and status != NOT_IMPLEMENTED


def read_version(seen: Seen, questions: Sequence[Question], answers: Sequence[Answer | None]) -> Seen:
    """Add the version from the responses to `about_version`."""
    versions = [text(_table(answer).get("version")) for answer in answers]
    version = next(filter(None, versions), seen.version)
    return replace(seen, version=version, asked=(*seen.asked, *_asked(questions, answers)))


def read_model(seen: Seen, questions: Sequence[Question], answers: Sequence[Answer | None], model: str = "") -> Seen:
    """Add what the response to `about_model` says."""
    asked = (*seen.asked, *_asked(questions, answers))
    table = _table(answers[0])
    shown = model_shown(table)
    family, why = family_told(shown, model)
    parser = dict(shown.words).get(PARSER)
    seen = replace(seen, family=family, family_why=why, num_ctx=shown.context, parser=parser, asked=asked)
    listed: Any = table.get("capabilities")
    if not is_array(listed):
        return seen
    capabilities = tuple(name for name in listed if isinstance(name, str))
    return replace(seen, capabilities=capabilities, context=_context(table.get("model_info")))


def facts_of(seen: Seen, modes: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    """Yield `(profile key, value, reason)` for what the server states about a model; `modes` are those so far."""
    if seen.parser is not None:
        yield "dialect", "json", f"PARSER {seen.parser} reads replies to requests without tools too"
    if not seen.template_tools:
        yield "modes", _not_native(modes), "GET /props: the model's chat template shows it no tools"
    if seen.capabilities is None:
        if seen.context is not None:
            yield (
                "context",
                seen.context,
                _TELLS.get(seen.kind or "", "max_model_len, in the server's list of models"),
            )
        return
    listed = f"{SHOW} lists {', '.join(seen.capabilities) or 'nothing'} as the model's capabilities"
    if "tools" not in seen.capabilities:
        yield "modes", _not_native(modes), f"{listed}, and no tools"
    if "thinking" not in seen.capabilities:
        yield "thinking", False, f"{listed}, and no thinking"
    if seen.context is not None:
        yield "num_ctx_limit", seen.context, f"the context length of the model, from {SHOW}"
    if seen.num_ctx is not None or seen.context is not None:
        yield (
            "context",
            seen.num_ctx or seen.context,
            f"the {'num_ctx' if seen.num_ctx else 'context length'} from {SHOW}",
        )


def _not_native(modes: Sequence[str]) -> tuple[str, ...]:
    return tuple(mode for mode in modes if mode != "native") or ("prompt",)


# -- reading responses

_NONE = "no answer"
_NAMED = "the server is named; only its version and its models were asked about"
_TELLS = {LLAMACPP: "n_ctx, from GET /props", LMSTUDIO: "loaded_context_length, from GET /api/v0/models"}
_Said = Mapping[str, dict[str, Any]]
_Sign = Callable[[_Said, str | None, Answer | None], str]


def _asked(questions: Sequence[Question], answers: Sequence[Answer | None]) -> tuple[tuple[str, str], ...]:
    """Return each request with its outcome for the trace; never the bodies, which may hold secrets."""
    return tuple(
        (asked.words, _NONE if answer is None else f"HTTP {answer.status}{'' if _fits(answer) else ', no JSON object'}")
        for asked, answer in zip(questions, answers, strict=True)
    )


def _fits(answer: Answer) -> bool:
    return answer.status != 200 or bool(_table(answer))


def _said(questions: Sequence[Question], answers: Sequence[Answer | None]) -> _Said:
    return {question.words: _table(answer) for question, answer in zip(questions, answers, strict=True)}


def _table(answer: Answer | None) -> dict[str, Any]:
    """Parse a response as a JSON object; empty where it is none, or the status is not 200."""
    if answer is None or answer.status != 200:
        return {}
    try:
        value: Any = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return value if is_table(value) else {}


def _owner(models: Mapping[str, Any]) -> str | None:
    """Return the `owned_by` that all listed models share; None where they differ, or there are none."""
    owners = {text(model.get("owned_by")) for model in items(models, "data")}
    return owners.pop() if len(owners) == 1 else None


def _plain_version(table: Mapping[str, Any]) -> str | None:
    """Return the version from a response that holds nothing else."""
    version = text(table.get("version"))
    return version if version and len(table) == 1 and _NUMBERED.match(version) else None


def _ollama(said: _Said, owner: str | None, _: Answer | None) -> str:
    version = _plain_version(said["GET /api/version"])
    return "" if not version or owner in PLAYING_OLLAMA else "GET /api/version answers as Ollama does"


def _vllm(said: _Said, owner: str | None, models: Answer | None) -> str:
    if OWNERS.get(owner or "") == VLLM:
        return "its models are owned by vllm"
    silent = models is None or models.status in _UNSURE
    # LocalAI has this path too, but its version begins with v; where the list of models can be read, that decides
    return "GET /version answers as vLLM does" if silent and _plain_version(said["GET /version"]) else ""


def _llamacpp(said: _Said, owner: str | None, _: Answer | None) -> str:
    props = said["GET /props"]
    if text(props.get("build_info")) and is_table(props.get("default_generation_settings")):
        return "GET /props answers as llama.cpp does"
    return "its models are owned by llamacpp" if OWNERS.get(owner or "") == LLAMACPP else ""


def _sglang(_said: _Said, owner: str | None, _: Answer | None) -> str:
    return "its models are owned by sglang" if OWNERS.get(owner or "") == SGLANG else ""


def _lmstudio(said: _Said, _owner: str | None, _: Answer | None) -> str:
    if any({"compatibility_type", "state"} <= model.keys() for model in items(said["GET /api/v0/models"], "data")):
        return "GET /api/v0/models answers as LM Studio does"
    listed = items(said["GET /api/v1/models"], "models")
    return (
        "GET /api/v1/models answers as LM Studio does" if any("loaded_instances" in model for model in listed) else ""
    )


def _build(said: _Said) -> str | None:
    """Return llama.cpp's build in the form of its release names; build 0 has no number."""
    match = _BUILD.match(text(said["GET /props"].get("build_info")) or "")
    return match[0] if match and int(match[1]) else None


def _context(info: Any) -> int | None:
    """Return the context length of `model_info`, in tokens; its key begins with the model's architecture."""
    return tokens(info.get(f"{info.get('general.architecture')}.context_length")) if is_table(info) else None


def _listed_context(models: Mapping[str, Any]) -> int | None:
    """Return how many tokens a prompt and its reply may have: the minimum of all listed models (vLLM, SGLang)."""
    lengths = [tokens(model.get("max_model_len")) for model in items(models, "data")]
    return min((length for length in lengths if length is not None), default=None)


_KINDS: dict[str, tuple[_Sign, Callable[[_Said], str | None]]] = {
    OLLAMA: (_ollama, lambda said: _plain_version(said.get("GET /api/version", {}))),
    VLLM: (_vllm, lambda said: text(said["GET /version"].get("version"))),
    LLAMACPP: (_llamacpp, _build),
    SGLANG: (_sglang, lambda _: None),
    LMSTUDIO: (_lmstudio, lambda _: None),
}
"""For each kind a function that returns the reason to conclude it, or "", and one that returns the version."""
