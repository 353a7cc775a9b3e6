"""The family of a model, by evidence: its chat template, its architecture and sizes, then the names that it has.

Apps send any model name, and many servers accept any, so a name in a request is the weakest evidence. The template
formats the conversation, whatever the model is called; the architecture and the size of the vocabulary are those of the
weights. These exclude families. Few of them leave only one: a family shares its template with its fine-tunes, so names
choose among what is left, in this order:

1. what the model was loaded from and what its file says of itself (`root`, `model_path`, `general.name`)
2. the server's own names for a kind of model (an architecture, a parser), where one of them means one family
3. the names under which it is served (`model_alias`, `id`), then the name in the request

A name of an excluded family counts for nothing. Where no name chooses, the most likely family of the template is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from promptools.errors import clip
from promptools.profiles.facts import families_without, family_known_as, family_of, template_allows

if TYPE_CHECKING:
    from promptools.profiles.model_descriptions import ModelDescription

TEMPLATE, NAME = "chat template", "name"
"""What decides besides the server's fields, which are named as the server names them."""


class FamilyFinding(NamedTuple):
    """The family of a model, and how it was found."""

    family: str | None = None
    """None: nothing implies one, or all that does is contradicted."""
    by: str = ""
    """The evidence that decided: `chat template`, a field of the server's, or `name` for the name in the request."""
    why: str = ""
    evidence: tuple[tuple[str, str], ...] = ()
    """What was considered, in order, and the families that it says: `("model_alias 'llama3'", "llama, contradicted")`.

    Empty where it says none.
    """


def find_family(model: ModelDescription, requested_name: str) -> FamilyFinding:
    """Return the family of a model that a server describes, and that is requested by a name."""
    return _FamilySearch(model).find(requested_name)


def family_by_name(requested_name: str) -> FamilyFinding:
    """Return the family of a model that the server does not describe."""
    return _named(family_of(requested_name), requested_name, ())


class _FamilySearch:
    """The evidence about one model: the families that its template fits, and those that are excluded."""

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
        """Return the family that the evidence leaves, and the names choose."""
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
        """Yield what names the model, the most reliable first: `(field, name, family, whether a family counts)`."""
        for field, text in self._model.files:
            for number, part in enumerate(name_parts(text)):
                family = family_of(part)
                if family or not number:  # other folders are nobody's business
                    yield field, part, family, self._allows
        yield from ((field, text, family_of(text), self._fits) for field, text in self._model.base_models)
        for field, word in self._model.kind_names:
            if family := family_known_as(word):
                yield field, word, family, self._speaks
        yield from ((field, text, family_of(text), self._allows) for field, text in self._model.served_names)

    def _allows(self, family: str) -> bool:
        """Whether neither the template nor the weights contradict a family."""
        return family not in self._excluded and template_allows(family, self._fitting)

    def _fits(self, family: str) -> bool:
        """Whether the template is one of a family: a fine-tune often has another than the model that it began with."""
        return family in self._fitting

    def _speaks(self, family: str) -> bool:
        """Whether the template does not contradict a family: a parser of Ollama's is for a format, not for weights."""
        return template_allows(family, self._model.template_families)

    def _record(self, label: str, family: str | None, allows: Callable[[str], bool]) -> bool:
        """Record a name; return whether it decides."""
        decides = family is not None and allows(family)
        lost = "not counted" if family is not None and self._allows(family) else "contradicted"
        self._evidence.append((label, "" if family is None else family if decides else f"{family}, {lost}"))
        return decides

    def _exclude(self, field: str, value: str | int, without: frozenset[str]) -> None:
        """Leave out the families whose models have other values; all of the template's cannot be wrong."""
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
        """Return a family, by the template or the weights if these left no other."""
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
    """Return the family of the name in a request, where the server tells nothing that decides."""
    if family is None:
        return FamilyFinding(evidence=tuple(evidence))
    shown = clip(repr(name))
    recorded = tuple(evidence) or ((f"{NAME} {shown}", family),)
    return FamilyFinding(family, NAME, f"the name {shown}, as the server tells nothing that decides", recorded)


def name_parts(path: str) -> Iterator[str]:
    """Yield the parts of a name or path that may name a model: the last, a folder of the hub's cache, the folder."""
    parts = [part for part in re.split(r"[/\\]", path) if part]
    yield from parts[-1:]
    yield from (part.removeprefix("models--").replace("--", "/") for part in parts if part.startswith("models--"))
    yield from parts[-2:-1]
