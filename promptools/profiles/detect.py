"""What a server tells about itself: which questions to ask it, and how its answers read. Nothing is sent from here.

A kind is concluded only from what the server itself says, in a form that no other server is known to give; never from
a port, a host or a model's name. Where answers name two kinds (a gateway, a server that plays another) none is
concluded, and then a server is `openai-compatible`.
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
"""What is asked below the server's root: of Ollama, vLLM, llama.cpp and, twice, LM Studio."""
SGLANG_ABOUT = ("/server_info", "/get_server_info")
"""Asked only of a server that says it is SGLang: the answer costs its scheduler a round, and holds its arguments."""
SHOW = "/api/show"
NAMED: Mapping[str, tuple[str, ...]] = {
    OLLAMA: (),
    VLLM: ("/version", MODELS),
    LLAMACPP: ("/props", MODELS),
    SGLANG: (MODELS,),
    LMSTUDIO: ("/api/v0/models",),
}
"""What is asked of a server whose kind is known, by kind: its version where facts go by it, and what its models are."""

OWNERS = {"vllm": VLLM, "llamacpp": LLAMACPP, "sglang": SGLANG}
"""What `owned_by` of every listed model says of the server."""
PLAYING_OLLAMA = frozenset(("docker", "koboldcpp", "lemonade", "llama-swap"))
"""Owners that servers write which answer Ollama's paths without being it."""

_NUMBERED = re.compile(r"[0-9]+\.[0-9]")
_BUILD = re.compile(r"b([0-9]+)")
_UNSURE = frozenset((401, 403, 408, 429))
NOT_IMPLEMENTED = 501
"""It says what a 404 says, and will say it the next time."""


class Question(NamedTuple):
    """One request of a look."""

    method: str
    url: str
    words: str
    """The request as the trace shows it: the method, and the path below the server's root."""
    body: bytes = b""


class Answer(NamedTuple):
    """What a server answered; the body is cut where it is very long."""

    status: int
    body: bytes


def root_of(base_url: str) -> str:
    """Give the server's root: its base URL without the last `/v1`, which may be a host's name too."""
    base = base_url.rstrip("/")
    root = base.removesuffix("/v1")
    return base if root.endswith(":/") else root


def about_server(base_url: str) -> tuple[Question, ...]:
    """Ask what server it is."""
    return _questions(base_url, (*ABOUT, MODELS))


def about_kind(base_url: str, kind: str) -> tuple[Question, ...]:
    """Ask a server whose kind is known for its version and its models."""
    return _questions(base_url, NAMED[kind])


def _questions(base_url: str, paths: Sequence[str]) -> tuple[Question, ...]:
    """Return requests of paths below the server's root, the list of models below its base URL."""
    base, root = base_url.rstrip("/"), root_of(base_url)
    below = (base.removeprefix(root) + path if path == MODELS else path for path in paths)
    return tuple(Question("GET", root + path, f"GET {path}") for path in below)


def about_version(base_url: str, seen: Seen) -> tuple[Question, ...]:
    """Ask for what only a known server can be asked for."""
    if seen.kind != SGLANG:
        return ()
    return tuple(Question("GET", root_of(base_url) + path, f"GET {path}") for path in SGLANG_ABOUT)


def about_model(base_url: str, model: str) -> tuple[Question, ...]:
    """Ask Ollama what a model can do."""
    body = json.dumps({"model": model}).encode()
    return (Question("POST", root_of(base_url) + SHOW, f"POST {SHOW}", body),)


def read_server(questions: Sequence[Question], answers: Sequence[Answer | None]) -> Seen:
    """Conclude what server answered `about_server`."""
    asked = _asked(questions, answers)
    if all(each is None for each in answers):
        return Seen(asked=asked, why="nothing answered in time")
    said = _said(questions, answers)
    models = said[questions[-1].words]
    owner = _owner(models)
    found: dict[str, tuple[str, str | None]] = {}
    for kind, (sign, version_in) in _KINDS.items():
        why = sign(said, owner, answers[-1])
        if why:
            found[kind] = (why, version_in(said))
    if len(found) != 1:
        told = " and ".join(f"{kind} ({why})" for kind, (why, _) in found.items())
        why = f"the answers name more than one kind: {told}" if found else "no answer says what server it is"
        return Seen(asked=asked, why=why)
    (kind, (why, version)) = next(iter(found.items()))
    return Seen(kind, version, context=_listed_context(models), asked=asked, why=why)


def read_kind(kind: str, questions: Sequence[Question], answers: Sequence[Answer | None]) -> Seen:
    """Conclude what a server of a known kind answered to `about_kind`."""
    said = _said(questions, answers)
    version = _KINDS[kind][1](said)
    models = said[questions[-1].words] if questions else {}
    asked = _asked(questions, answers)
    return Seen(kind, version, context=_listed_context(models), asked=asked, why=_NAMED)


def read_models(questions: Sequence[Question], answers: Sequence[Answer | None]) -> tuple[Told, ...]:
    """Read what a server tells of its models."""
    return models_told(_said(questions, answers))


def of_model(seen: Seen, listed: Sequence[Told], model: str) -> Seen:
    """Add what a server told of the model that answers to a name."""
    told = chosen(listed, model)
    if told is None:
        return seen
    family, why = family_told(told, model)
    return replace(seen, family=family, family_why=why, context=told.context or seen.context, template_tools=told.tools)


def is_settled(answers: Sequence[Answer | None]) -> bool:
    """Whether a server whose kind is known need not be asked again."""
    return all(each is not None and each.status not in _UNSURE and not _is_down(each.status) for each in answers)


def is_certain(seen: Seen, answers: Sequence[Answer | None]) -> bool:
    """Tell whether a look need not be taken again.

    A server that is not up yet, that refuses the key or has no time just now may tell more the next time.
    """
    if seen.kind is not None:
        return True
    models = answers[-1]
    if models is None:
        return any(each is not None for each in answers)
    return models.status not in _UNSURE and not _is_down(models.status)


def _is_down(status: int) -> bool:
    return status >= 500 and status != NOT_IMPLEMENTED


def read_version(seen: Seen, questions: Sequence[Question], answers: Sequence[Answer | None]) -> Seen:
    """Add what the answers to `about_version` tell."""
    told = [text(_table(each).get("version")) for each in answers]
    version = next(filter(None, told), seen.version)
    return replace(seen, version=version, asked=(*seen.asked, *_asked(questions, answers)))


def read_model(seen: Seen, questions: Sequence[Question], answers: Sequence[Answer | None], model: str = "") -> Seen:
    """Add what the answer to `about_model` tells."""
    asked = (*seen.asked, *_asked(questions, answers))
    table = _table(answers[0])
    told = model_shown(table)
    family, why = family_told(told, model)
    parser = dict(told.words).get(PARSER)
    seen = replace(seen, family=family, family_why=why, num_ctx=told.context, parser=parser, asked=asked)
    listed: Any = table.get("capabilities")
    if not is_array(listed):
        return seen
    capabilities = tuple(each for each in listed if isinstance(each, str))
    return replace(seen, capabilities=capabilities, context=_context(table.get("model_info")))


def facts_of(seen: Seen, modes: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    """Give the facts that were told of a model, each with its reason; `modes` are the ones so far."""
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


# -- how answers read

_NONE = "no answer"
_NAMED = "the server is named; only its version and its models were asked about"
_TELLS = {LLAMACPP: "n_ctx, from GET /props", LMSTUDIO: "loaded_context_length, from GET /api/v0/models"}
_Said = Mapping[str, dict[str, Any]]
_Sign = Callable[[_Said, str | None, Answer | None], str]


def _asked(questions: Sequence[Question], answers: Sequence[Answer | None]) -> tuple[tuple[str, str], ...]:
    """Say what was asked and what came of it; never what the bodies hold, which may be secrets."""
    return tuple(
        (each.words, _NONE if answer is None else f"HTTP {answer.status}{'' if _fits(answer) else ', no JSON object'}")
        for each, answer in zip(questions, answers, strict=True)
    )


def _fits(answer: Answer) -> bool:
    return answer.status != 200 or bool(_table(answer))


def _said(questions: Sequence[Question], answers: Sequence[Answer | None]) -> _Said:
    return {each.words: _table(answer) for each, answer in zip(questions, answers, strict=True)}


def _table(answer: Answer | None) -> dict[str, Any]:
    """Read an answer as a JSON object; empty where it is none, or where the server did not say 200."""
    if answer is None or answer.status != 200:
        return {}
    try:
        value: Any = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return value if is_table(value) else {}


def _owner(models: Mapping[str, Any]) -> str | None:
    """Give what every listed model has as its `owned_by`; None where they differ, or there are none."""
    owners = {text(each.get("owned_by")) for each in items(models, "data")}
    return owners.pop() if len(owners) == 1 else None


def _plain_version(table: Mapping[str, Any]) -> str | None:
    """Give the version of an answer that holds nothing else."""
    version = text(table.get("version"))
    return version if version and len(table) == 1 and _NUMBERED.match(version) else None


def _ollama(said: _Said, owner: str | None, _: Answer | None) -> str:
    version = _plain_version(said["GET /api/version"])
    return "" if not version or owner in PLAYING_OLLAMA else "GET /api/version answers as Ollama does"


def _vllm(said: _Said, owner: str | None, models: Answer | None) -> str:
    if OWNERS.get(owner or "") == VLLM:
        return "its models are owned by vllm"
    silent = models is None or models.status in _UNSURE
    # LocalAI has this path too, and writes v before its version; so does a list of models, where it is to be had
    return "GET /version answers as vLLM does" if silent and _plain_version(said["GET /version"]) else ""


def _llamacpp(said: _Said, owner: str | None, _: Answer | None) -> str:
    props = said["GET /props"]
    if text(props.get("build_info")) and is_table(props.get("default_generation_settings")):
        return "GET /props answers as llama.cpp does"
    return "its models are owned by llamacpp" if OWNERS.get(owner or "") == LLAMACPP else ""


def _sglang(_said: _Said, owner: str | None, _: Answer | None) -> str:
    return "its models are owned by sglang" if OWNERS.get(owner or "") == SGLANG else ""


def _lmstudio(said: _Said, _owner: str | None, _: Answer | None) -> str:
    if any({"compatibility_type", "state"} <= each.keys() for each in items(said["GET /api/v0/models"], "data")):
        return "GET /api/v0/models answers as LM Studio does"
    listed = items(said["GET /api/v1/models"], "models")
    return "GET /api/v1/models answers as LM Studio does" if any("loaded_instances" in each for each in listed) else ""


def _build(said: _Said) -> str | None:
    """Give llama.cpp's build as its releases are named; 0 is a build that nobody numbered."""
    found = _BUILD.match(text(said["GET /props"].get("build_info")) or "")
    return found[0] if found and int(found[1]) else None


def _context(info: Any) -> int | None:
    """Read the context length of `model_info`, in tokens; its key begins with the model's architecture."""
    return tokens(info.get(f"{info.get('general.architecture')}.context_length")) if is_table(info) else None


def _listed_context(models: Mapping[str, Any]) -> int | None:
    """Read how long a prompt and its answer may be, in tokens: the least of all listed models (vLLM, SGLang)."""
    lengths = [tokens(each.get("max_model_len")) for each in items(models, "data")]
    return min((each for each in lengths if each is not None), default=None)


_KINDS: dict[str, tuple[_Sign, Callable[[_Said], str | None]]] = {
    OLLAMA: (_ollama, lambda said: _plain_version(said.get("GET /api/version", {}))),
    VLLM: (_vllm, lambda said: text(said["GET /version"].get("version"))),
    LLAMACPP: (_llamacpp, _build),
    SGLANG: (_sglang, lambda _: None),
    LMSTUDIO: (_lmstudio, lambda _: None),
}
"""For each kind its sign, which gives the reason in words or nothing, and where its version stands."""
