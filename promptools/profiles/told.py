"""What a server says about its models: their names, files and chat templates, and the family that follows from them.

Apps send any model name, and many servers accept any. So a model's family is concluded from what the server says about
the model, and from the name in the request only where the server says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from promptools.profiles.facts import agrees, families_of_template, family_known_as, family_of
from promptools.profiles.shape import is_array, is_table

PARSER = "PARSER"
"""The field of a Modelfile that names one of Ollama's parsers."""


class Told(NamedTuple):
    """A server's description of one model."""

    names: tuple[str, ...] = ()
    """Names under which it can be requested."""
    files: tuple[tuple[str, str], ...] = ()
    """`(field, name or path)` of what it was loaded from, the most reliable first."""
    words: tuple[tuple[str, str], ...] = ()
    """`(field, name)` of the server's own names for the kind of model, such as its architecture."""
    families: tuple[str, ...] = ()
    """Families that its chat template fits, the most likely first."""
    context: int | None = None
    """Tokens that a prompt and its reply may have together."""
    any_name: bool = False
    """Whether it serves requests for any name."""
    tools: bool = True
    """Whether its chat template renders the tools of a request; true where the server does not say."""


def family_told(told: Told, asked: str) -> tuple[str | None, str]:
    """Return the family of a model, with the reason; None where nothing that the server says implies one.

    A name counts only if the template does not contradict it. The name in the request comes last, and only chooses
    among the families that the template fits.
    """
    for field, text in told.files:
        for part in _parts(text):
            family = family_of(part)
            if family and agrees(family, told.families):
                return family, f"{field} {part!r}, which the server tells"
    for field, word in told.words:
        family = family_known_as(word)
        if family and agrees(family, told.families):
            return family, f"{field} {word!r}, which the server tells"
    if not told.families:
        return None, ""
    own = family_of(asked)
    if own and agrees(own, told.families):
        return own, f"the name {asked!r}, with which the server's chat template agrees"
    return told.families[0], "the chat template that the server tells"


def chosen(listed: Sequence[Told], model: str) -> Told | None:
    """Return the model that serves a name: the one listed under it, or one that serves any name; else None.

    On most servers the only model of a list serves any name. But some load what is requested, so a name that implies a
    family is believed there.
    """
    named = next((known for known in listed if model in known.names), None)
    only = listed[0] if len(listed) == 1 and not family_of(model) else None
    return named or next((known for known in listed if known.any_name), only)


def models_told(answers: Mapping[str, Mapping[str, Any]]) -> tuple[Told, ...]:
    """Return the models of a server, from its responses by request (`GET /v1/models`)."""
    local = items(answers.get("GET /api/v0/models", {}), "data")
    if any("state" in model for model in local):
        loaded = [model for model in local if model.get("state") == "loaded" and model.get("type") != "embeddings"]
        return tuple(_lmstudio(model, any_name=[model] == loaded) for model in local)
    props = answers.get("GET /props", {})
    listed = [model for request, table in answers.items() if _lists(request) for model in items(table, "data")]
    if text(props.get("model_path")) and len(listed) <= 1:
        return (_llamacpp(props, listed[0] if listed else {}),)
    by_name = {name: model for model in listed if (name := text(model.get("id")))}
    return tuple(_listed(model, by_name) for model in listed)


def model_shown(shown: Mapping[str, Any]) -> Told:
    """Return what Ollama's response to /api/show says about a model."""
    info, details = _table(shown.get("model_info")), _table(shown.get("details"))
    parser = re.search(r"^PARSER (?!passthrough$)(\S+)", text(shown.get("modelfile")) or "", re.MULTILINE)
    num_ctx = re.search(r"^num_ctx\s+([0-9]{1,9})$", text(shown.get("parameters")) or "", re.MULTILINE)
    return Told(
        files=_fields(info, "general.basename", "general.name") + _fields(details, "parent_model"),
        words=(
            *(((PARSER, parser[1]),) if parser else ()),
            *_fields(details, "family"),
            *_fields(info, "general.architecture"),
        ),
        families=families_of_template(text(shown.get("template")) or ""),
        context=int(num_ctx[1]) or None if num_ctx else None,
    )


# -- reading responses


def items(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects of the array under a key."""
    value: Any = table.get(key)
    return [item for item in value if is_table(item)] if is_array(value) else []


def text(value: Any) -> str | None:
    """Return a value if it is a non-empty string."""
    return value if isinstance(value, str) and value else None


def tokens(value: Any) -> int | None:
    """Return a value if it is a positive integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _table(value: Any) -> dict[str, Any]:
    return value if is_table(value) else {}


def _fields(table: Mapping[str, Any], *keys: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, string) for key in keys if (string := text(table.get(key))))


def _lists(words: str) -> bool:
    return words.endswith("/models") and not words.startswith("GET /api/")


def _parts(path: str) -> Iterator[str]:
    """Yield the parts of a name or path that may name a model: the last, a folder of the hub's cache, the folder."""
    parts = [part for part in re.split(r"[/\\]", path) if part]
    yield from parts[-1:]
    yield from (part.removeprefix("models--").replace("--", "/") for part in parts if part.startswith("models--"))
    yield from parts[-2:-1]


def _llamacpp(props: Mapping[str, Any], listed: Mapping[str, Any]) -> Told:
    """Read llama.cpp's only model, which serves any name."""
    settings, meta = _table(props.get("default_generation_settings")), _table(listed.get("meta"))
    template = (text(props.get("chat_template")) or "") + (text(props.get("chat_template_tool_use")) or "")
    return Told(
        files=_fields(props, "model_path", "model_alias") + _fields(listed, "id"),
        families=families_of_template(template),
        context=tokens(settings.get("n_ctx")) or tokens(meta.get("n_ctx")),
        any_name=True,
        tools=_shows_tools(props),
    )


def _shows_tools(props: Mapping[str, Any]) -> bool:
    """Return whether a template renders tools; `chat_template_caps` ignores the separate template for tools."""
    capabilities = _table(props.get("chat_template_caps"))
    return capabilities.get("supports_tools") is not False or bool(text(props.get("chat_template_tool_use")))


def _listed(model: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]]) -> Told:
    """Read one entry of a list of models; an adapter names its base model as `parent`."""
    name, base = text(model.get("id")), by_name.get(text(model.get("parent")) or "")
    aliases: Any = model.get("aliases")
    meta = _table(model.get("meta"))
    return Told(
        names=tuple(filter(None, (name, *map(text, aliases if is_array(aliases) else ())))),
        files=_fields(model, "root") + (_fields(base, "root") if base else ()) + _fields(model, "parent", "id"),
        context=tokens(model.get("max_model_len")) or tokens(meta.get("n_ctx")),
    )


def _lmstudio(model: Mapping[str, Any], *, any_name: bool) -> Told:
    """Read one of LM Studio's models; if it is the only one loaded, it serves any name."""
    name = text(model.get("id"))
    return Told(
        names=(name,) if name else (),
        files=_fields(model, "id"),
        words=_fields(model, "arch"),
        context=tokens(model.get("loaded_context_length")),
        any_name=any_name,
    )
