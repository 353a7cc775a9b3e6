"""What a server says of its models: which it lists, what file and template they have, and the family that follows.

Apps send any name, and many servers answer to any. So a model's family comes from what the server says of the model,
and from the name in the request only where the server says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from promptools.profiles.facts import agrees, families_of_template, family_known_as, family_of
from promptools.profiles.shape import is_array, is_table

PARSER = "PARSER"
"""The field of a Modelfile that names a parser of Ollama's own."""


class Told(NamedTuple):
    """One model, as its server describes it."""

    names: tuple[str, ...] = ()
    """What it is asked for by."""
    files: tuple[tuple[str, str], ...] = ()
    """Names and paths of what it was loaded from, each with the field that holds it; the most telling first."""
    words: tuple[tuple[str, str], ...] = ()
    """Words of the server's own for the kind of model, its architecture for one, each with its field."""
    families: tuple[str, ...] = ()
    """Families whose chat template it has, the most likely first."""
    context: int | None = None
    """Tokens that a prompt and its answer may have together."""
    any_name: bool = False
    """Does it answer to any name?"""
    tools: bool = True
    """Whether its chat template shows the model the tools of a request; true where the server does not tell."""


def family_told(told: Told, asked: str) -> tuple[str | None, str]:
    """Return the family of a model, with the reason; None where nothing that the server says tells it.

    A name counts only if the template does not contradict it. The name in the request comes last, and only chooses
    among the families that share the template.
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
    """Return the model that answers to a name: the one that is listed by it, or one that answers to any name.

    The only one of a list does too on most servers; but some load what they are asked for, so a name that tells a
    family is believed there.
    """
    named = next((each for each in listed if model in each.names), None)
    only = listed[0] if len(listed) == 1 and not family_of(model) else None
    return named or next((each for each in listed if each.any_name), only)


def models_told(answers: Mapping[str, Mapping[str, Any]]) -> tuple[Told, ...]:
    """Return the models of a server, from its answers by their question."""
    local = items(answers.get("GET /api/v0/models", {}), "data")
    if any("state" in each for each in local):
        loaded = [each for each in local if each.get("state") == "loaded" and each.get("type") != "embeddings"]
        return tuple(_lmstudio(each, any_name=[each] == loaded) for each in local)
    props = answers.get("GET /props", {})
    listed = [each for words, said in answers.items() if _lists(words) for each in items(said, "data")]
    if text(props.get("model_path")) and len(listed) <= 1:
        return (_llamacpp(props, listed[0] if listed else {}),)
    by_name = {name: each for each in listed if (name := text(each.get("id")))}
    return tuple(_listed(each, by_name) for each in listed)


def model_shown(shown: Mapping[str, Any]) -> Told:
    """Return what Ollama's answer to /api/show says of a model."""
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


# -- how answers read


def items(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the tables of an array."""
    value: Any = table.get(key)
    return [each for each in value if is_table(each)] if is_array(value) else []


def text(value: Any) -> str | None:
    """Return a string that is not empty."""
    return value if isinstance(value, str) and value else None


def tokens(value: Any) -> int | None:
    """Return a number of tokens, one at least."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _table(value: Any) -> dict[str, Any]:
    return value if is_table(value) else {}


def _fields(table: Mapping[str, Any], *keys: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, said) for key in keys if (said := text(table.get(key))))


def _lists(words: str) -> bool:
    return words.endswith("/models") and not words.startswith("GET /api/")


def _parts(path: str) -> Iterator[str]:
    """Return the parts of a name or path that may name a model: the last, a folder of the hub's cache, the folder."""
    parts = [each for each in re.split(r"[/\\]", path) if each]
    yield from parts[-1:]
    yield from (each.removeprefix("models--").replace("--", "/") for each in parts if each.startswith("models--"))
    yield from parts[-2:-1]


def _llamacpp(props: Mapping[str, Any], listed: Mapping[str, Any]) -> Told:
    """Read llama.cpp's only model, which answers to any name."""
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
    """Whether the template has a place for tools; what it says of itself is about the template for other requests."""
    capabilities = _table(props.get("chat_template_caps"))
    return capabilities.get("supports_tools") is not False or bool(text(props.get("chat_template_tool_use")))


def _listed(model: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]]) -> Told:
    """Read one of a list of models; an adapter says what model it is one of."""
    name, base = text(model.get("id")), by_name.get(text(model.get("parent")) or "")
    aliases: Any = model.get("aliases")
    meta = _table(model.get("meta"))
    return Told(
        names=tuple(filter(None, (name, *map(text, aliases if is_array(aliases) else ())))),
        files=_fields(model, "root") + (_fields(base, "root") if base else ()) + _fields(model, "parent", "id"),
        context=tokens(model.get("max_model_len")) or tokens(meta.get("n_ctx")),
    )


def _lmstudio(model: Mapping[str, Any], *, any_name: bool) -> Told:
    """Read one of LM Studio's models; the only one that is loaded answers to any name."""
    name = text(model.get("id"))
    return Told(
        names=(name,) if name else (),
        files=_fields(model, "id"),
        words=_fields(model, "arch"),
        context=tokens(model.get("loaded_context_length")),
        any_name=any_name,
    )
