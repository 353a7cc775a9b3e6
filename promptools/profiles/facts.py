"""The packaged facts: one TOML file for each kind of server and each family of models.

Each file holds `title` and `[[fact]]` tables. The file of a kind of server may also hold `aliases` and `base_url`. The
file of a family may hold `template_dialect`, and also `globs`, `known_as`, `[[template]]` and `[weights]`. With these
four, a model of the family is recognized in a server's description of the model.

A fact is a profile key, its value, the reason, a source (`repo#n` is a GitHub issue), and the day on which the fact was
checked. `since` and `until` restrict the fact to versions of the server; `until` is the first version for which it no
longer holds. `on` restricts the fact to kinds of server, and `below_parameters` restricts it to smaller models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import Field, create_model

import promptools
from promptools.errors import UsageError, clip, suggest
from promptools.parsing.escape import MAX_TOKEN_LENGTH, is_valid_token
from promptools.patterns import lazy_pattern
from promptools.profiles.profile import Profile
from promptools.profiles.tables import (
    Location,
    Strings,
    Table,
    accepting_arrays,
    is_table,
    set_fields,
    validate_table,
)

NOT_FACTS = {"kind": "name the server's kind on the provider", "family": "name the family on the model"}
"""For each profile field that no fact can set, what to do instead. These fields identify the profile."""

NO_FAMILY = "none"
"""The value of `family` by which a config says that a model has no family, even if its name matches one."""


class Fact(Table):
    """A dated statement about a server or a family, with its source."""

    key: str
    value: Any
    why: str
    source: str
    date: date
    since: str | None = None
    until: str | None = None
    on: Strings = ()
    below_parameters: float | None = None
    """The fact holds only for models with fewer parameters than this."""

    def holds(self, kind: str, version: str | None, parameters: float | None = None) -> bool:
        """Return whether the fact holds for a server of this kind and version, and a model with this many parameters.

        If the version is unknown, the newest is assumed. A fact with `below_parameters` does not hold for a model of
        unknown size.
        """
        if self.on and kind not in self.on:
            return False
        if self.below_parameters is not None and (parameters is None or parameters >= self.below_parameters):
            return False
        if version is None:
            return self.until is None
        at = version_numbers(version)
        return (self.since is None or version_numbers(self.since) <= at) and (
            self.until is None or at < version_numbers(self.until)
        )


class TemplateSignature(Table):
    """How to recognize a family's chat template, whatever template language it is written in."""

    holds: Strings
    """Texts that must all occur in the template."""
    lacks: Strings = ()
    """Texts that must not occur in the template."""
    source: str
    date: date


class Weights(Table):
    """Properties of the models of a family.

    Each property lists all values that occur; it is empty if the values are not known.
    """

    architectures: Strings = ()
    """The architectures of the models, as GGUF files name them."""
    vocabularies: Annotated[tuple[int, ...], Field(strict=False)] = ()
    """The sizes of the models' vocabularies (`n_vocab`)."""
    source: str
    date: date


@dataclass(frozen=True, slots=True)
class Builtin:
    """The packaged data on one kind of server or one family of models."""

    name: str
    title: str
    facts: tuple[Fact, ...]
    aliases: tuple[str, ...] = ()
    """Other names for a kind of server."""
    base_url: str | None = None
    """The address where a server of this kind listens by default."""
    globs: tuple[str, ...] = ()
    """Patterns of model names, such as `*qwen3*`, in the form that `normalize_model_name` returns."""
    known_as: tuple[str, ...] = ()
    """Names that servers use for the family, such as an architecture in GGUF files or one of Ollama's parsers."""
    templates: tuple[TemplateSignature, ...] = ()
    """How to recognize the family's chat template; one matching signature is enough."""
    weights: Weights | None = None
    template_dialect: str | None = None
    """The format of calls (dialect) in the family's chat template, if prompt mode asks for another format."""


def version_numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers for comparison: `v0.16.0+cpu` is (0, 16), `b10488` is (10488,)."""
    parts = [int(part) for part in re.findall(r"[0-9]+", version.partition("+")[0])]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def normalize_model_name(model: str) -> str:
    """Return a model's name in lower case, with `-` in place of `_` and spaces, to match it against globs."""
    return model.strip().lower().replace("_", "-").replace(" ", "-")


_SIZE_IN_NAME = lazy_pattern(
    r"(?<![a-z0-9.])(?<!\b0-)"  # `0_5b` is no 5b
    r"(?![0-9]m)"  # Qwen2.5-7B-Instruct-1M: a context
    r"([0-9]{1,4}(?:\.[0-9]{1,3})?)([mb])(?![a-z0-9])"
)
_UNITS = {"m": 1e6, "b": 1e9}


def size_in_name(name: str) -> float | None:
    """Return the number of parameters in a model's name, 5e8 for `qwen2.5-coder-0.5b`; None if the name states none.

    If a name has several sizes, the first is returned: in a mixture of experts, the active parameters come second
    (`30b-a3b`).
    """
    size = _SIZE_IN_NAME.search(normalize_model_name(name))
    return float(size[1]) * _UNITS[size[2]] if size else None


@cache
def fact_types() -> type[Table]:
    """Return a pydantic model with all profile keys that a fact may set, each of them optional."""
    kinds = {
        name: (accepting_arrays(kind), None) for name, kind in get_type_hints(Profile).items() if name not in NOT_FACTS
    }
    types: Any = kinds
    return create_model("Facts", __base__=Table, **types)


def check_facts(value: Any, location: Location) -> dict[str, Any]:
    """Validate a table of profile keys and values; return them, with each value converted to its type in `Profile`.

    Raises `UsageError`, which names the location, for an unknown key or an invalid value.
    """
    for key in NOT_FACTS if is_table(value) else ():
        if key in value:
            raise (location / key).error(f"not a fact: {NOT_FACTS[key]}")
    facts = set_fields(validate_table(fact_types(), value, location))
    for key, fact in facts.items():
        _check_fact(key, fact, location / key)
    return facts


def _check_fact(key: str, value: Any, location: Location) -> None:
    """Raise `UsageError` if a value breaks a rule that a type cannot express."""
    if key == "modes" and not value:
        raise location.error("name at least one mode")
    if key == "control_tokens":
        _check_control_tokens(value, location)
    if key == "context" or key.startswith("num_ctx"):
        _check_tokens(value, location)
    if key == "tool_names":
        try:
            re.compile(value)
        except re.error as error:
            raise location.error(f"{value!r} is not a valid regular expression: {error}") from None


def _check_tokens(value: str | int, location: Location) -> None:
    """Raise `UsageError` for a number of tokens below one.

    A string is accepted, because the type check has already ensured that it is a word such as `fit`.
    """
    if isinstance(value, int) and value < 1:
        raise location.error(f"{value} is not a valid number of tokens; write 1 or more")


def _check_control_tokens(tokens: tuple[str, ...], location: Location) -> None:
    """Raise `UsageError` for a control token that cannot be distinguished from ordinary text."""
    for token in tokens:
        if not is_valid_token(token):
            raise location.error(
                f"{clip(repr(token), 80)} is not a control token: two to {MAX_TOKEN_LENGTH} characters, "
                "no backslash, and no digit,"
                " space or placeholder at its beginning"
            )


@cache
def facts_folder() -> Path:
    """Return the folder of packaged facts: inside the wheel, or beside the package in a source tree."""
    package = Path(promptools.__file__).parent
    packed = package / "_providers"
    return packed if packed.is_dir() else package.parent / "providers"


@cache
def kinds() -> tuple[str, ...]:
    """Return the kinds of server that have packaged facts."""
    return tuple(sorted(path.stem for path in (facts_folder() / "servers").glob("*.toml")))


@cache
def families() -> tuple[str, ...]:
    """Return the families of models that have packaged facts."""
    return tuple(sorted(path.stem for path in (facts_folder() / "families").glob("*.toml")))


@cache
def load_builtin(name: str) -> Builtin:
    """Load the packaged data about a kind of server or a family of models."""
    for shelf, names in (("servers", kinds()), ("families", families())):
        if name in names:
            return _load(facts_folder() / shelf / f"{name}.toml")
    raise UsageError(f"no facts ship about {name!r}; {suggest(name, (*kinds(), *families()))}")


def _load(path: Path) -> Builtin:
    """Load one file of facts."""
    import tomllib  # only when a profile is needed

    location = Location(f"{path.parent.name}/{path.name}")
    file = validate_table(_FactsFile, tomllib.loads(path.read_text(encoding="utf-8")), location)
    return Builtin(
        path.stem,
        file.title,
        tuple(_with_typed_value(fact, location / "fact" / index) for index, fact in enumerate(file.fact)),
        file.aliases,
        file.base_url,
        file.globs,
        file.known_as,
        file.template,
        file.weights,
        file.template_dialect,
    )


class _FactsFile(Table):
    """The contents of a file of facts."""

    title: str
    aliases: Strings = ()
    base_url: str | None = None
    globs: Strings = ()
    known_as: Strings = ()
    template_dialect: str | None = None
    template: Annotated[tuple[TemplateSignature, ...], Field(strict=False)] = ()
    weights: Weights | None = None
    fact: Annotated[tuple[Fact, ...], Field(strict=False)] = ()


def _with_typed_value(fact: Fact, location: Location) -> Fact:
    """Return a fact whose value has the type of the field in `Profile`."""
    return fact.model_copy(update={"value": check_facts({fact.key: fact.value}, location)[fact.key]})


CONTROL_TOKEN_FORMS = ("<|{word}|>", "<｜{word}｜>")
"""The forms of nearly all control tokens. For an unknown model, any text in such a form counts as a control token."""


@cache
def all_control_tokens() -> frozenset[str]:
    """Return the control tokens of all families, and `CONTROL_TOKEN_FORMS`."""
    every = (fact.value for name in families() for fact in load_builtin(name).facts if fact.key == "control_tokens")
    return frozenset(CONTROL_TOKEN_FORMS).union(*every)


@cache
def family_dialect(family: str) -> str | None:
    """Return the format of calls (dialect) that a family's chat template asks for; None if unknown.

    It is the family's `template_dialect` or, without one, the dialect that prompt mode uses. But `json` is promptools'
    own format, which no template asks for, so None is returned in its place.
    """
    builtin = load_builtin(family)
    named = (fact.value for fact in builtin.facts if fact.key == "dialect" and fact.value != "json")
    return builtin.template_dialect or next(named, None)


@cache
def kind_of(name: str) -> str | None:
    """Return the kind of server that has this name or alias, ignoring case; None if the name is unknown."""
    wanted = name.lower()
    return next((kind for kind in kinds() if wanted in (kind, *load_builtin(kind).aliases)), None)


@lru_cache(maxsize=256)
def family_of(model: str) -> str | None:
    """Return the family that a model's name matches, or None.

    If several globs match, the one with the most literal characters decides.
    """
    name = normalize_model_name(model)
    matching = [
        (len(re.sub(r"\[[^]]*\]|[*?]", "", glob)), family)
        for family in families()
        for glob in load_builtin(family).globs
        if fnmatchcase(name, glob)
    ]
    return max(matching)[1] if matching else None


def families_of_template(template: str) -> tuple[str, ...]:
    """Return the families that may have this chat template.

    The families are sorted by the total length of the texts that identify their templates, the longest first, and then
    by the length of their names, the shortest first.
    """
    matching = [
        (-sum(map(len, known.holds)), len(family), family)
        for family in families()
        for known in load_builtin(family).templates
        if all(fragment in template for fragment in known.holds)
        and not any(fragment in template for fragment in known.lacks)
    ]
    return tuple(dict.fromkeys(family for _, _, family in sorted(matching)))


def template_allows(family: str, by_template: tuple[str, ...]) -> bool:
    """Return whether a model whose chat template matches the families `by_template` may belong to this family.

    The answer is no if the family's templates are known, and the model's template matches only other families.
    """
    return not by_template or family in by_template or not load_builtin(family).templates


@lru_cache(maxsize=256)
def families_without(key: Literal["architectures", "vocabularies"], value: str | int) -> frozenset[str]:
    """Return the families whose models never have this architecture, or this vocabulary size.

    Return an empty set for a value that no family declares, since the value may be new or spelled differently.
    """
    declared: dict[str, set[str | int]] = {
        family: {_plain(each) for each in getattr(weights, key)}
        for family in families()
        if (weights := load_builtin(family).weights) is not None and getattr(weights, key)
    }
    plain = _plain(value)
    if not any(plain in values for values in declared.values()):
        return frozenset()
    return frozenset(family for family, values in declared.items() if plain not in values)


def _plain(value: str | int) -> str | int:
    """Return an architecture's name without punctuation, since servers differ in it: `gpt-oss`, `gptoss`, `gpt_oss`."""
    return re.sub(r"[-_.]", "", value.lower()) if isinstance(value, str) else value


@cache
def family_known_as(name: str) -> str | None:
    """Return the family that servers call by this name, such as an architecture in GGUF files; None if unknown."""
    return next((family for family in families() if name in load_builtin(family).known_as), None)


def check_kind(name: str | None, location: Location) -> str | None:
    """Return the kind of server with this name or alias; None for no name. Raises `UsageError` for an unknown name."""
    kind = kind_of(name) if name else None
    if name and not kind:
        raise (location / "kind").error(f"{name!r} is not a known kind of server; {suggest(name, kinds())}")
    return kind


def check_family(name: str | None, location: Location) -> str | None:
    """Return the name of a family, or `none`, unchanged; raise UsageError for an unknown family."""
    if name and name not in (NO_FAMILY, *families()):
        raise (location / "family").error(
            f"{name!r} is not a known model family; {suggest(name, (NO_FAMILY, *families()))}"
        )
    return name or None
