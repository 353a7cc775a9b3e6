"""Find the family of a model by evidence: the chat template, then the architecture and sizes, then the names.

Apps send arbitrary model names, and many servers accept any name, so a name in a request is the weakest evidence. The
template formats the conversation, no matter how the model is named. The architecture and the size of the vocabulary
describe the weights. Template and weights exclude families, but rarely leave only one, since a family shares its
template with its fine-tunes. Names then choose among the remaining families, in this order:

1. the file from which the model was loaded, and the names in that file (`root`, `model_path`, `general.name`)
2. the server's own names for a kind of model (an architecture, a parser), if such a name implies one family
3. the names under which the model is served (`model_alias`, `id`), then the name in the request

The name of an excluded family is ignored. If no name decides, the most likely family of the template is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from promptools.errors import clip
from promptools.profiles.facts import (
    families_of_template,
    families_without,
    family_known_as,
    family_of,
    size_in_name,
    template_allows,
)
from promptools.profiles.tables import is_array, is_table

# A server's description of its models: their names, files, chat templates, architectures and sizes.


PARSER_FIELD = "PARSER"
"""The field of a Modelfile that names one of Ollama's parsers."""

SGLANG_PATHS = ("/server_info", "/get_server_info")
"""Paths under which SGLang returns its server arguments.

They are requested only if the server is known to be SGLang. Each response costs a round of SGLang's scheduler.
"""


class ModelDescription(NamedTuple):
    """A server's description of one model."""

    names: tuple[str, ...] = ()
    """Names under which the model can be requested."""
    files: tuple[tuple[str, str], ...] = ()
    """`(field, name or path)` of the file that was loaded, and of the names in that file, the most reliable first."""
    base_models: tuple[tuple[str, str], ...] = ()
    """`(field, name)` of the model from which this one was fine-tuned."""
    kind_names: tuple[tuple[str, str], ...] = ()
    """`(field, name)` of the server's own names for the kind of model, such as its architecture."""
    served_names: tuple[tuple[str, str], ...] = ()
    """`(field, name)` of the names that the model was given on the server."""
    template_families: tuple[str, ...] = ()
    """Families that the model's chat template fits, the most likely first."""
    has_template: bool = False
    """Whether the server's description includes the model's chat template."""
    architecture: str | None = None
    """The architecture of the model's weights, as a GGUF file names it."""
    vocabulary: int | None = None
    """The size of the model's vocabulary."""
    parameters: float | None = None
    """The model's parameter count, as the server states it."""
    context: int | None = None
    """Maximum number of tokens of a prompt and its reply together."""
    serves_any_name: bool = False
    """Whether this model serves every request, whatever model name the request contains."""
    renders_tools: bool = True
    """Whether the model's chat template renders the tools of a request; true if the server does not say."""


def find_description(listed: Sequence[ModelDescription], model: str) -> ModelDescription | None:
    """Return the listed model that serves requests for a name; None if there is none.

    It is the model with this name, or else a model that serves requests for any name, or else the only listed model.

    The last rule holds because most servers use their only model for all requests. But some servers load the requested
    model, so this rule does not apply to a name that implies a family.
    """
    named = next((known for known in listed if model in known.names), None)
    only = listed[0] if len(listed) == 1 and not family_of(model) else None
    return named or next((known for known in listed if known.serves_any_name), only)


def describe_models(bodies: Mapping[str, Mapping[str, Any]]) -> tuple[ModelDescription, ...]:
    """Return the models that a server describes; `bodies` maps requests such as `GET /props` to the JSON responses."""
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
    """Return the description of a model in Ollama's response to /api/show."""
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
        parameters=token_count(info.get("general.parameter_count"))
        or size_in_name(nonempty_string(details.get("parameter_size")) or ""),
        context=int(num_ctx[1]) or None if num_ctx else None,
    )


# -- reading responses


def objects_under(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects in the array under a key; empty if there is no array."""
    value: Any = table.get(key)
    return [item for item in value if is_table(item)] if is_array(value) else []


def nonempty_string(value: Any) -> str | None:
    """Return a value if it is a non-empty string, else None."""
    return value if isinstance(value, str) and value else None


def token_count(value: Any) -> int | None:
    """Return a value if it is a positive integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _table(value: Any) -> dict[str, Any]:
    return value if is_table(value) else {}


def _fields(table: Mapping[str, Any], *keys: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, string) for key in keys if (string := nonempty_string(table.get(key))))


def _with_finetune(info: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return `((fields, name),)`, where the name joins a GGUF file's `basename` and `finetune`; empty without both.

    Converters differ in how they split a name between the two fields.
    """
    base, tuned = nonempty_string(info.get("general.basename")), nonempty_string(info.get("general.finetune"))
    return (("general.basename, general.finetune", f"{base}-{tuned}"),) if base and tuned else ()


def _is_model_list(label: str) -> bool:
    return label.endswith("/models") and not label.startswith("GET /api/")


def _llamacpp(props: Mapping[str, Any], listed: Mapping[str, Any]) -> ModelDescription:
    """Return the description of llama.cpp's only model, which serves requests for any name."""
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
        parameters=token_count(meta.get("n_params")),
        context=token_count(settings.get("n_ctx")) or token_count(meta.get("n_ctx")),
        serves_any_name=True,
        renders_tools=_template_renders_tools(props),
    )


def _template_renders_tools(props: Mapping[str, Any]) -> bool:
    """Return whether the chat template of llama.cpp's model puts the tools of a request into the prompt.

    A separate template for tools is considered too, although `chat_template_caps` does not consider it.
    """
    capabilities = _table(props.get("chat_template_caps"))
    return capabilities.get("supports_tools") is not False or bool(nonempty_string(props.get("chat_template_tool_use")))


def _list_entry(
    model: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]], arguments: Mapping[str, Any]
) -> ModelDescription:
    """Return the description of a model from its entry in a server's list of models.

    The entry of an adapter names the adapter's base model as `parent`. `arguments` are SGLang's server arguments, which
    contain the path of the model. SGLang's list of models contains only the served name, as `root`.
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
    """Return the description of a model of LM Studio; `any_name` says whether it serves requests for any name."""
    name = nonempty_string(model.get("id"))
    return ModelDescription(
        names=(name,) if name else (),
        files=_fields(model, "id"),
        kind_names=_fields(model, "arch"),
        architecture=nonempty_string(model.get("arch")),
        context=token_count(model.get("loaded_context_length")),
        serves_any_name=any_name,
    )


def find_size(model: ModelDescription, requested_name: str) -> float | None:
    """Return a model's parameter count, from the server's description or one of its names; None if unknown."""
    names = (*(part for _, path in model.files for part in name_parts(path)), *(name for _, name in model.served_names))
    sizes = (model.parameters, *map(size_in_name, (*names, requested_name)))
    return next(filter(None, sizes), None)


TEMPLATE, NAME = "chat template", "name"
"""Labels for two kinds of evidence. Evidence in a field of the server's response is labeled with the field's name."""


class FamilyFinding(NamedTuple):
    """The family of a model, and how it was found."""

    family: str | None = None
    """The family; None if no evidence implies a family, or if each family that is implied is ruled out."""
    by: str = ""
    """The deciding evidence: `chat template`, one of the server's fields, or `name` for the name in the request."""
    why: str = ""
    evidence: tuple[tuple[str, str], ...] = ()
    """Each piece of evidence, in order, and what it implies: `("model_alias 'llama3'", "llama, contradicted")`.

    The second string is empty if the evidence implies no family.
    """


def find_family(model: ModelDescription, requested_name: str) -> FamilyFinding:
    """Find the family of a model from the server's description of the model and from the requested name."""
    return _FamilySearch(model).find(requested_name)


def family_by_name(requested_name: str) -> FamilyFinding:
    """Find the family from the requested name alone, for a model that the server does not describe."""
    return _named(family_of(requested_name), requested_name, ())


class _FamilySearch:
    """Collects the evidence about a model: the families that its template matches, and those that are excluded."""

    def __init__(self, model: ModelDescription) -> None:
        self._model = model
        self._fitting = model.template_families
        self._excluded: frozenset[str] = frozenset()
        self._excluded_by = TEMPLATE
        self._evidence = [(TEMPLATE, ", ".join(self._fitting))] if model.has_template else []
        if model.architecture:
            self._exclude("architecture", model.architecture, families_without("architectures", model.architecture))
        if model.vocabulary:
            self._exclude("n_vocab", model.vocabulary, families_without("vocabularies", model.vocabulary))

    def find(self, requested_name: str) -> FamilyFinding:
        """Use the model's names to choose among the families that are not excluded, and return the finding."""
        for field, word, family, allows in self._names():
            label = f"{field} {clip(repr(word))}"
            if self._record(label, family, allows):
                return self._finding(family, field, f"{label}, which the server tells")
        own, shown = family_of(requested_name), clip(repr(requested_name))
        if requested_name and self._record(f"{NAME} {shown}", own, self._allows):
            agrees = f"the name {shown}, with which the server's chat template agrees"
            return self._finding(own, NAME, agrees) if self._fitting else _named(own, requested_name, self._evidence)
        return self._finding(self._fitting[0] if self._fitting else None, self._excluded_by, self._why_by_template())

    def _names(self) -> Iterator[tuple[str, str, str | None, Callable[[str], bool]]]:
        """Yield `(field, name, family, test)` for each name of the model, the most reliable first.

        `test` takes the family that the name implies, and returns whether this family is accepted.
        """
        for field, text in self._model.files:
            for number, part in enumerate(name_parts(text)):
                family = family_of(part)
                if family or not number:  # other parts of the user's path are not shown in the evidence
                    yield field, part, family, self._allows
        yield from ((field, text, family_of(text), self._fits) for field, text in self._model.base_models)
        for field, word in self._model.kind_names:
            if family := family_known_as(word):
                yield field, word, family, self._speaks
        yield from ((field, text, family_of(text), self._allows) for field, text in self._model.served_names)

    def _allows(self, family: str) -> bool:
        """Return whether the chat template and the weights are consistent with a family."""
        return family not in self._excluded and template_allows(family, self._fitting)

    def _fits(self, family: str) -> bool:
        """Return whether the model's template is a template of this family.

        The name of a base model is accepted as evidence only in this case, since a fine-tune often has a different
        template than its base model.
        """
        return family in self._fitting

    def _speaks(self, family: str) -> bool:
        """Return whether the template allows a family that one of the server's own names implies.

        The weights are not considered, because the name may be that of an Ollama parser, which implies only a format.
        """
        return template_allows(family, self._model.template_families)

    def _record(self, label: str, family: str | None, allows: Callable[[str], bool]) -> bool:
        """Record a name as evidence; return whether it decides the family."""
        decides = family is not None and allows(family)
        lost = "not counted" if family is not None and self._allows(family) else "contradicted"
        self._evidence.append((label, "" if family is None else family if decides else f"{family}, {lost}"))
        return decides

    def _exclude(self, field: str, value: str | int, without: frozenset[str]) -> None:
        """Exclude the families in `without`, whose models never have this value.

        They are kept if they include all families that the template matches.
        """
        excluded = [family for family in self._fitting if family in without]
        if excluded and len(excluded) == len(self._fitting):
            self._evidence.append((f"{field} {value!r}", "not counted: it contradicts the chat template"))
            return
        self._evidence.append((f"{field} {value!r}", f"not {', '.join(excluded)}" if excluded else ""))
        self._excluded |= without
        if excluded:
            self._fitting = tuple(family for family in self._fitting if family not in without)
            self._excluded_by = field

    def _finding(self, family: str | None, by: str, why: str) -> FamilyFinding:
        """Return the finding for a family; if the family is None, the finding has only the evidence.

        If the template and the weights leave only this family, they are given as the reason instead of `by` and `why`.
        """
        if family is None:
            return FamilyFinding(evidence=tuple(self._evidence))
        if self._fitting == (family,):
            by, why = self._excluded_by, self._why_by_template()
        return FamilyFinding(family, by, why, tuple(self._evidence))

    def _why_by_template(self) -> str:
        why = "the chat template that the server tells"
        if self._excluded_by != TEMPLATE:
            why += f", and the model's {self._excluded_by}"
        others = ", ".join(self._fitting[1:])
        return f"{why}; no name says that it is {others}, which would fit too" if others else why


def _named(family: str | None, name: str, evidence: Sequence[tuple[str, str]]) -> FamilyFinding:
    """Return the finding for the family that the requested name implies, used if nothing else decides the family."""
    if family is None:
        return FamilyFinding(evidence=tuple(evidence))
    shown = clip(repr(name))
    recorded = tuple(evidence) or ((f"{NAME} {shown}", family),)
    return FamilyFinding(family, NAME, f"the name {shown}, as the server tells nothing that decides", recorded)


def name_parts(path: str) -> Iterator[str]:
    """Yield parts of a path that may name a model.

    These are the last part, folders of Hugging Face's cache (`models--OWNER--MODEL`), and the second-to-last part.
    """
    parts = [part for part in re.split(r"[/\\]", path) if part]
    yield from parts[-1:]
    yield from (part.removeprefix("models--").replace("--", "/") for part in parts if part.startswith("models--"))
    yield from parts[-2:-1]
