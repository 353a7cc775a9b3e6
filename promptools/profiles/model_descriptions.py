"""What a server says about its models: their names, files, chat templates, architectures and sizes.

`model_family` concludes from it which family a model is of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from promptools.profiles.facts import families_of_template, family_of
from promptools.profiles.tables import is_array, is_table

PARSER_FIELD = "PARSER"
"""The field of a Modelfile that names one of Ollama's parsers."""

SGLANG_PATHS = ("/server_info", "/get_server_info")
"""Asked only of a server known as SGLang: the response costs its scheduler a round, and holds its arguments."""


class ModelDescription(NamedTuple):
    """A server's description of one model."""

    names: tuple[str, ...] = ()
    """Names under which it can be requested."""
    files: tuple[tuple[str, str], ...] = ()
    """`(field, name or path)` of what it was loaded from, and what that says of itself, the most reliable first."""
    base_models: tuple[tuple[str, str], ...] = ()
    """`(field, name)` of what it was trained further from."""
    kind_names: tuple[tuple[str, str], ...] = ()
    """`(field, name)` of the server's own names for the kind of model, such as its architecture."""
    served_names: tuple[tuple[str, str], ...] = ()
    """`(field, name)` of the names that somebody gave it on the server."""
    template_families: tuple[str, ...] = ()
    """Families that its chat template fits, the most likely first."""
    has_template: bool = False
    """Whether the server shows its chat template."""
    architecture: str | None = None
    """The architecture of its weights, as a GGUF file names it."""
    vocabulary: int | None = None
    """The number of its tokens."""
    context: int | None = None
    """Tokens that a prompt and its reply may have together."""
    serves_any_name: bool = False
    """Whether it serves requests for any name."""
    renders_tools: bool = True
    """Whether its chat template renders the tools of a request; true where the server does not say."""


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
    told = [bodies.get(f"GET {path}", {}) for path in SGLANG_PATHS]
    arguments = told[0] or told[1]
    return tuple(_list_entry(model, by_name, arguments) for model in listed)


def describe_ollama_model(shown: Mapping[str, Any]) -> ModelDescription:
    """Return what Ollama's response to /api/show says about a model."""
    info, details = _table(shown.get("model_info")), _table(shown.get("details"))
    parser = re.search(r"^PARSER (?!passthrough$)(\S+)", nonempty_string(shown.get("modelfile")) or "", re.MULTILINE)
    num_ctx = re.search(r"^num_ctx\s+([0-9]{1,9})$", nonempty_string(shown.get("parameters")) or "", re.MULTILINE)
    template = nonempty_string(shown.get("template")) or ""
    return ModelDescription(
        files=_with_finetune(info)
        + _fields(info, "general.basename", "general.name")
        + _fields(details, "parent_model"),
        base_models=_fields(info, "general.base_model.0.name"),
        kind_names=(
            *(((PARSER_FIELD, parser[1]),) if parser else ()),
            *_fields(details, "family"),
            *_fields(info, "general.architecture"),
        ),
        template_families=families_of_template(template),
        has_template=bool(template),
        architecture=nonempty_string(info.get("general.architecture")) or nonempty_string(details.get("family")),
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


def _with_finetune(info: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the basename with what the file says that it was tuned for: converters divide a name in other places."""
    base, tuned = nonempty_string(info.get("general.basename")), nonempty_string(info.get("general.finetune"))
    return (("general.basename, general.finetune", f"{base}-{tuned}"),) if base and tuned else ()


def _is_model_list(label: str) -> bool:
    return label.endswith("/models") and not label.startswith("GET /api/")


def _llamacpp(props: Mapping[str, Any], listed: Mapping[str, Any]) -> ModelDescription:
    """Read llama.cpp's only model, which serves any name."""
    settings, meta = _table(props.get("default_generation_settings")), _table(listed.get("meta"))
    template = (nonempty_string(props.get("chat_template")) or "") + (
        nonempty_string(props.get("chat_template_tool_use")) or ""
    )
    return ModelDescription(
        files=_fields(props, "model_path"),
        served_names=_fields(props, "model_alias") + _fields(listed, "id"),
        template_families=families_of_template(template),
        has_template=bool(template),
        vocabulary=token_count(meta.get("n_vocab")),
        context=token_count(settings.get("n_ctx")) or token_count(meta.get("n_ctx")),
        serves_any_name=True,
        renders_tools=_template_renders_tools(props),
    )


def _template_renders_tools(props: Mapping[str, Any]) -> bool:
    """Whether a template renders tools; `chat_template_caps` ignores the separate template for tools."""
    capabilities = _table(props.get("chat_template_caps"))
    return capabilities.get("supports_tools") is not False or bool(nonempty_string(props.get("chat_template_tool_use")))


def _list_entry(
    model: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]], arguments: Mapping[str, Any]
) -> ModelDescription:
    """Read one entry of a list of models; an adapter names its base model as `parent`.

    `arguments` are SGLang's, whose list has the served name as `root`.
    """
    name, base = nonempty_string(model.get("id")), by_name.get(nonempty_string(model.get("parent")) or "")
    aliases: Any = model.get("aliases")
    meta = _table(model.get("meta"))
    started_with = _fields(arguments, "model_path") if name and arguments.get("served_model_name") == name else ()
    return ModelDescription(
        names=tuple(filter(None, (name, *map(nonempty_string, aliases if is_array(aliases) else ())))),
        files=started_with
        + _fields(model, "root")
        + (_fields(base, "root") if base else ())
        + _fields(model, "parent"),
        served_names=_fields(model, "id"),
        context=token_count(model.get("max_model_len")) or token_count(meta.get("n_ctx")),
    )


def _lmstudio(model: Mapping[str, Any], *, any_name: bool) -> ModelDescription:
    """Read one of LM Studio's models; if it is the only one loaded, it serves any name."""
    name = nonempty_string(model.get("id"))
    return ModelDescription(
        names=(name,) if name else (),
        files=_fields(model, "id"),
        kind_names=_fields(model, "arch"),
        architecture=nonempty_string(model.get("arch")),
        context=token_count(model.get("loaded_context_length")),
        serves_any_name=any_name,
    )
