"""Facts that ship with promptools: one TOML file for each kind of server and each family of models.

A file holds `title`, `[[fact]]` tables, and for servers `aliases` and `base_url`, for families `globs`. A fact is a
profile key, its value, why it is so, where that can be read (`repo#n` is a GitHub issue), and the day it was checked.
`since` and `until` bound it by server version (`until` is the first version that it no longer holds for), `on` by kind
of server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_type_hints

import promptools
from promptools.errors import UsageError, clip
from promptools.parsing.escape import LONGEST, fits
from promptools.profiles.profile import Profile
from promptools.profiles.shape import Place, Section, is_table, near, read, table

NOT_FACTS = {"kind": "name the server's kind on the provider", "family": "name the family on the model"}
"""Fields of a profile that say what it is about; no fact sets them."""

NO_FAMILY = "none"
"""The family of a model that shall have none, whatever its name matches."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One dated, sourced statement about a server or a family."""

    key: str
    value: Any
    why: str
    source: str
    date: date
    since: str | None = None
    until: str | None = None
    on: tuple[str, ...] = ()

    def holds(self, kind: str, version: str | None) -> bool:
        """Tell whether it holds for this server. A version that nobody names is taken for the newest."""
        if self.on and kind not in self.on:
            return False
        if version is None:
            return self.until is None
        at = numbers(version)
        return (self.since is None or numbers(self.since) <= at) and (self.until is None or at < numbers(self.until))


@dataclass(frozen=True, slots=True)
class Builtin:
    """What ships about one kind of server or one family of models."""

    name: str
    title: str
    facts: tuple[Fact, ...]
    aliases: tuple[str, ...] = ()
    """Other spellings of a server kind."""
    base_url: str | None = None
    """Where such a server listens when nobody says otherwise."""
    globs: tuple[str, ...] = ()
    """Patterns of model names, in the form that `plain` gives."""


def numbers(version: str) -> tuple[int, ...]:
    """Give a version's numbers for comparing: `v0.16.0+cpu` is (0, 16), `b10488` is (10488,)."""
    found = [int(part) for part in re.findall(r"[0-9]+", version.partition("+")[0])]
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)


def plain(model: str) -> str:
    """Write a model's name in the one form that globs are matched against: lower case, `-` for `_` and space."""
    return model.strip().lower().replace("_", "-").replace(" ", "-")


@cache
def fact_types() -> Mapping[str, Any]:
    """Give the type of each profile key that a fact may set."""
    hints = get_type_hints(Profile)
    return {each.name: hints[each.name] for each in fields(Profile) if each.name not in NOT_FACTS}


def check_facts(value: Any, place: Place) -> dict[str, Any]:
    """Take a table of profile keys and values; values come back in the profile's own types."""
    for key in NOT_FACTS if is_table(value) else ():
        if key in value:
            raise (place / key).error(f"not a fact: {NOT_FACTS[key]}")
    known = fact_types()
    return {key: _fact_value(key, each, place / key) for key, each in table(value, place, known).items()}


def _fact_value(key: str, value: Any, place: Place) -> Any:
    """Take one fact's value, and look at those that a type cannot describe."""
    taken = read(fact_types()[key], value, place)
    if key == "modes" and not taken:
        raise place.error("name at least one mode")
    if key == "control_tokens":
        _check_markup(taken, place)
    if key == "context" or key.startswith("num_ctx"):
        _check_tokens(taken, place)
    if key == "tool_names":
        try:
            re.compile(taken)
        except re.error as error:
            raise place.error(f"{taken!r} is no regular expression: {error}") from None
    return taken


def _check_tokens(said: str | int, place: Place) -> None:
    """Refuse a number of tokens that is none; words have been looked at."""
    if isinstance(said, int) and said < 1:
        raise place.error(f"{said} is no number of tokens; name at least one")


def _check_markup(tokens: tuple[str, ...], place: Place) -> None:
    """Refuse a control token that cannot be told from ordinary text."""
    for token in tokens:
        if not fits(token):
            raise place.error(
                f"{clip(repr(token), 80)} is no control token: two to {LONGEST} characters, no backslash, and no digit,"
                " space or placeholder at its beginning"
            )


@cache
def folder() -> Path:
    """Find the folder of packaged facts: inside the wheel, or beside the package in a source tree."""
    package = Path(promptools.__file__).parent
    packed = package / "_providers"
    return packed if packed.is_dir() else package.parent / "providers"


@cache
def kinds() -> tuple[str, ...]:
    """List the kinds of servers that facts ship about."""
    return tuple(sorted(path.stem for path in (folder() / "servers").glob("*.toml")))


@cache
def families() -> tuple[str, ...]:
    """List the families of models that facts ship about."""
    return tuple(sorted(path.stem for path in (folder() / "families").glob("*.toml")))


@cache
def load_builtin(name: str) -> Builtin:
    """Load what ships about a kind of server or a family of models."""
    for shelf, names in (("servers", kinds()), ("families", families())):
        if name in names:
            return _load(folder() / shelf / f"{name}.toml")
    raise UsageError(f"no facts ship about {name!r}; {near(name, (*kinds(), *families()))}")


def _load(path: Path) -> Builtin:
    """Read one file of facts."""
    import tomllib  # only when a profile is wanted

    place = Place(f"{path.parent.name}/{path.name}")
    data = table(
        tomllib.loads(path.read_text(encoding="utf-8")), place, ("title", "aliases", "base_url", "globs", "fact")
    )
    facts = tuple(_fact(each, place / "fact" / index) for index, each in enumerate(data.get("fact", ())))
    strings = tuple[str, ...]
    return Builtin(
        path.stem,
        read(str, data.get("title"), place / "title"),
        facts,
        read(strings, data.get("aliases", ()), place / "aliases"),
        read(str, data["base_url"], place / "base_url") if "base_url" in data else None,
        read(strings, data.get("globs", ()), place / "globs"),
    )


def _fact(data: Any, place: Place) -> Fact:
    """Take one `[[fact]]` table."""
    given = table(data, place, [each.name for each in fields(Fact)])
    value = check_facts({given["key"]: given["value"]}, place)[given["key"]]
    return Fact(**{**given, "value": value, "on": read(tuple[str, ...], given.get("on", ()), place / "on")})


SHAPES = ("<|{word}|>", "<｜{word}｜>")
"""What nearly all control tokens look like: of a model that nobody knows, each such text is taken for one."""


@cache
def all_control_tokens() -> frozenset[str]:
    """Return the control tokens of all families, and what they look like."""
    every = (fact.value for name in families() for fact in load_builtin(name).facts if fact.key == "control_tokens")
    return frozenset(SHAPES).union(*every)


@cache
def kind_of(name: str) -> str | None:
    """Find the kind of server that a name or alias means, in any case; None when it means none."""
    wanted = name.lower()
    return next((kind for kind in kinds() if wanted in (kind, *load_builtin(kind).aliases)), None)


@lru_cache(maxsize=256)
def family_of(model: str) -> str | None:
    """Find a model's family: of all globs that match, the one with the most literal characters decides."""
    name = plain(model)
    found = [
        (len(re.sub(r"\[[^]]*\]|[*?]", "", glob)), family)
        for family in families()
        for glob in load_builtin(family).globs
        if fnmatchcase(name, glob)
    ]
    return max(found)[1] if found else None


def take_kind(section: Section) -> str | None:
    """Read a section's `kind`: the name or an alias of a kind of server."""
    name = section.text("kind")
    kind = kind_of(name) if name else None
    if name and not kind:
        raise (section.place / "kind").error(f"{name!r} is no kind of server; {near(name, kinds())}")
    return kind


def take_family(section: Section) -> str | None:
    """Read a section's `family`: the name of a family, or `none`."""
    name = section.text("family")
    if name and name not in (NO_FAMILY, *families()):
        raise (section.place / "family").error(f"{name!r} is no family; {near(name, (NO_FAMILY, *families()))}")
    return name


def take_facts(section: Section) -> dict[str, Any]:
    """Read a section's `profile`: facts that patch what ships."""
    return check_facts(section.data.get("profile", {}), section.place / "profile")
