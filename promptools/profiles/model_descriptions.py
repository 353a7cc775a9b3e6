"""What a server says about its models: their names, files and chat templates, and the family that follows from them.

Apps send any model name, and many servers accept any. So a model's family is concluded from what the server says about
the model, and from the name in the request only where the server says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from promptools.profiles.facts import families_of_template, family_known_as, family_of, template_allows
from promptools.profiles.tables import is_array, is_table

PARSER_FIELD = "PARSER"
"""The field of a Modelfile that names one of Ollama's parsers."""


class ModelDescription(NamedTuple):
    """A server's description of one model."""

    names: tuple[str, ...] = ()
    """Names under which it can be requested."""
    files: tuple[tuple[str, str], ...] = ()
    """`(field, name or path)` of what it was loaded from, the most reliable first."""
    kind_names: tuple[tuple[str, str], ...] = ()
    """`(field, name)` of the server's own names for the kind of model, such as its architecture."""
    template_families: tuple[str, ...] = ()
    """Families that its chat template fits, the most likely first."""
    context: int | None = None
    """Tokens that a prompt and its reply may have together."""
    serves_any_name: bool = False
    """Whether it serves requests for any name."""
    renders_tools: bool = True
    """Whether its chat template renders the tools of a request; true where the server does not say."""


def described_family(model: ModelDescription, requested_name: str) -> tuple[str | None, str]:
    """Return the family of a model, with the reason; None where nothing that the server says implies one.

    A name counts only if the template does not contradict it. The name in the request comes last, and only chooses
    among the families that the template fits.
    """
    for field, text in model.files:
        for part in _name_parts(text):
            family = family_of(part)
            if family and template_allows(family, model.template_families):
                return family, f"{field} {part!r}, which the server tells"
    for field, word in model.kind_names:
        family = family_known_as(word)
        if family and template_allows(family, model.template_families):
            return family, f"{field} {word!r}, which the server tells"
    if not model.template_families:
        return None, ""
    own = family_of(requested_name)
    if own and template_allows(own, model.template_families):
        return own, f"the name {requested_name!r}, with which the server's chat template agrees"
    return model.template_families[0], "the chat template that the server tells"


def find_description(listed: Sequence[ModelDescription], model: str) -> ModelDescription | None:
    """Return the model that serves a name: the one listed under it, or one that serves any name; else None.

    On most servers the only model of a list serves any name. But some load what is requested, so a name that implies a
    family is believed there.
    """
    named = next((known for known in listed if model in known.names), None)
    only = listed[0] if len(listed) == 1 and not family_of(model) else None
    return named or next((known for known in listed if known.serves_any_name), only)


def describe_models(bodies: Mapping[str, Mapping[str, Any]]) -> tuple[ModelDescription, ...]:
    """Return the models of a server, from its responses by request (`GET /v1/models`)."""
    local = objects_under(bodies.get("GET /api/v0/models", {}), "data")
    if any("state" in model for model in local):
        loaded = [model for model in local if model.get("state") == "loaded" and model.get("type") != "embeddings"]
        return tuple(_lmstudio(model, any_name=[model] == loaded) for model in local)
    props = bodies.get("GET /props", {})
    listed = [
        model for request, table in bodies.items() if _is_model_list(request) for model in objects_under(table, "data")
    ]
    if nonempty_string(props.get("model_path")) and len(listed) <= 1:
        return (_llamacpp(props, listed[0] if listed else {}),)
    by_name = {name: model for model in listed if (name := nonempty_string(model.get("id")))}
    return tuple(_list_entry(model, by_name) for model in listed)


def describe_ollama_model(shown: Mapping[str, Any]) -> ModelDescription:
    """Return what Ollama's response to /api/show says about a model."""
    info, details = _table(shown.get("model_info")), _table(shown.get("details"))
    parser = re.search(r"^PARSER (?!passthrough$)(\S+)", nonempty_string(shown.get("modelfile")) or "", re.MULTILINE)
    num_ctx = re.search(r"^num_ctx\s+([0-9]{1,9})$", nonempty_string(shown.get("parameters")) or "", re.MULTILINE)
    return ModelDescription(
        files=_fields(info, "general.basename", "general.name") + _fields(details, "parent_model"),
        kind_names=(
            *(((PARSER_FIELD, parser[1]),) if parser else ()),
            *_fields(details, "family"),
            *_fields(info, "general.architecture"),
        ),
        template_families=families_of_template(nonempty_string(shown.get("template")) or ""),
        context=int(num_ctx[1]) or None if num_ctx else None,
    )


# -- reading responses


def objects_under(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects of the array under a key."""
    value: Any = table.get(key)
    return [item for item in value if is_table(item)] if is_array(value) else []


def nonempty_string(value: Any) -> str | None:
    """Return a value if it is a non-empty string."""
    return value if isinstance(value, str) and value else None


def token_count(value: Any) -> int | None:
    """Return a value if it is a positive integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _table(value: Any) -> dict[str, Any]:
    return value if is_table(value) else {}


def _fields(table: Mapping[str, Any], *keys: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, string) for key in keys if (string := nonempty_string(table.get(key))))


def _is_model_list(label: str) -> bool:
    return label.endswith("/models") and not label.startswith("GET /api/")


def _name_parts(path: str) -> Iterator[str]:
    """Yield the parts of a name or path that may name a model: the last, a folder of the hub's cache, the folder."""
    parts = [part for part in re.split(r"[/\\]", path) if part]
    yield from parts[-1:]
    yield from (part.removeprefix("models--").replace("--", "/") for part in parts if part.startswith("models--"))
    yield from parts[-2:-1]


def _llamacpp(props: Mapping[str, Any], listed: Mapping[str, Any]) -> ModelDescription:
    """Read llama.cpp's only model, which serves any name."""
    settings, meta = _table(props.get("default_generation_settings")), _table(listed.get("meta"))
    template = (nonempty_string(props.get("chat_template")) or "") + (
        nonempty_string(props.get("chat_template_tool_use")) or ""
    )
    return ModelDescription(
        files=_fields(props, "model_path", "model_alias") + _fields(listed, "id"),
        template_families=families_of_template(template),
        context=token_count(settings.get("n_ctx")) or token_count(meta.get("n_ctx")),
        serves_any_name=True,
        renders_tools=_template_renders_tools(props),
    )


def _template_renders_tools(props: Mapping[str, Any]) -> bool:
    """Whether a template renders tools; `chat_template_caps` ignores the separate template for tools."""
    capabilities = _table(props.get("chat_template_caps"))
    return capabilities.get("supports_tools") is not False or bool(nonempty_string(props.get("chat_template_tool_use")))


def _list_entry(model: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]]) -> ModelDescription:
    """Read one entry of a list of models; an adapter names its base model as `parent`."""
    name, base = nonempty_string(model.get("id")), by_name.get(nonempty_string(model.get("parent")) or "")
    aliases: Any = model.get("aliases")
    meta = _table(model.get("meta"))
    return ModelDescription(
        names=tuple(filter(None, (name, *map(nonempty_string, aliases if is_array(aliases) else ())))),
        files=_fields(model, "root") + (_fields(base, "root") if base else ()) + _fields(model, "parent", "id"),
        context=token_count(model.get("max_model_len")) or token_count(meta.get("n_ctx")),
    )


def _lmstudio(model: Mapping[str, Any], *, any_name: bool) -> ModelDescription:
    """Read one of LM Studio's models; if it is the only one loaded, it serves any name."""
    name = nonempty_string(model.get("id"))
    return ModelDescription(
        names=(name,) if name else (),
        files=_fields(model, "id"),
        kind_names=_fields(model, "arch"),
        context=token_count(model.get("loaded_context_length")),
        serves_any_name=any_name,
    )
