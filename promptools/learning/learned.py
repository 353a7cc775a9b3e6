"""Learn a dialect: try candidate tables until one passes all checks, and write this table as TOML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from promptools.dialects.table import make_dialect, parse_table
from promptools.dialects.table_file import DialectTable
from promptools.errors import UsageError, clip
from promptools.json_values import is_object, toml_value
from promptools.jsontext.text import dump
from promptools.learning.candidates import ONE, OTHER, Samples, Table, candidates, read_samples
from promptools.learning.declared_parsing import Declaration, as_declared, read_declaration
from promptools.learning.renderings import (
    VARIANTS,
    Frame,
    Renderer,
    Renderings,
    Variant,
    find_frames,
    is_printed_object,
)
from promptools.learning.surroundings import learn_surroundings, opens_reasoning
from promptools.learning.validation import Outcome, Rendered, check, render_trials, trial_tools
from promptools.schema import Tools

if TYPE_CHECKING:
    from promptools.dialects.contract import Dialect
    from promptools.dialects.declared import DeclaredDialect


@dataclass(frozen=True)
class Learned:
    """A dialect learned from a template. It is not registered anywhere."""

    name: str
    table: Mapping[str, object]
    """The dialect's table, with the keys that `promptools.dialects.table` explains."""
    toml: str
    """The table as TOML. `promptools.dialects.load` reads a file with this text."""
    checks: tuple[str, ...]
    """What was verified, and for how many calls."""
    notes: tuple[str, ...] = ()
    """What could not be learned, and how far the table can be trusted."""

    @property
    def given(self) -> DialectTable:
        """The table in the form that `promptools.dialects.using` takes. This form can be sent to another process."""
        return DialectTable(f"{self.name}.toml", self.toml)

    def dialect(self) -> DeclaredDialect:
        """Return the dialect that the table declares."""
        return parse_table(self.given)


def learn(
    render: Renderer,
    *,
    name: str,
    special_tokens: Iterable[str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Learned:
    """Learn from a model's chat template how the model writes calls; `render` renders the template.

    `special_tokens` are the texts of tokens that prose never contains, if known. `config` is the content of the model's
    `tokenizer_config.json`. What this config says about parsing replies (`response_template` or `response_schema`) is
    tried first. Raises `UsageError` if no table reads and writes the calls as the template does; the message says what
    was wrong with the best table.
    """
    renderings = Renderings(render, trial_tools(ONE, OTHER), special_tokens or ())
    if renderings.render([], prompt=True) is None:  # templates that go through all types of a union know no null
        renderings = Renderings(render, trial_tools(ONE, OTHER, without=("nothing",)), special_tokens or ())
    if renderings.render([], prompt=True) is None:
        raise UsageError(f"The template of {name!r} renders no conversation: {clip(renderings.refusal)}")
    declaration = read_declaration(config or {})
    search = _Search(renderings, name)
    if declaration.tables:
        found = search.first(lambda samples: as_declared(declaration, candidates(renderings, samples)))
        if found is not None:
            return found.learned(declaration)
        declaration = declaration._replace(problem=search.problem)
    found = search.first(lambda samples: candidates(renderings, samples))
    if found is not None:
        return found.learned(declaration)
    raise UsageError(f"No table of {name!r} could be learned from its template: {clip(search.problem, 600)}")


class _Search:
    """A search for a candidate table that passes all checks. No candidate is tried twice."""

    def __init__(self, renderings: Renderings, name: str) -> None:
        self._renderings, self._name = renderings, name
        self._tried: set[str] = set()
        self._best = Outcome(-1, 0, 0, 0, 0, "")
        self._seen = ""

    def first(self, make: Callable[[Samples], Iterable[Table]]) -> _Attempt | None:
        """Return the first candidate that passes all checks; `make` derives candidates from the template's output."""
        for variant, frame, samples in _ways(self._renderings):
            self._seen = self._seen or samples.one
            for table in make(samples):
                key = dump([table, frame.before, frame.after, variant])
                if key in self._tried:
                    continue
                self._tried.add(key)
                attempt = _Attempt(self._renderings, self._name, variant, frame, table)
                if attempt.outcome.holds:
                    return attempt
                self._best = max(self._best, attempt.outcome, key=lambda outcome: outcome.read)
        return None

    @property
    def problem(self) -> str:
        """Why no candidate passed all checks."""
        if self._best.problem:
            return self._best.problem
        return f"no table has the form of {self._seen!r}" if self._seen else _nothing_found(self._renderings)


def _nothing_found(renderings: Renderings) -> str:
    refused = f"it refuses them: {renderings.refusal}" if renderings.refusal else "it does not write them"
    return f"the calls cannot be found in what it renders, or {refused}"


def _ways(renderings: Renderings) -> Iterator[tuple[Variant, Frame, Samples]]:
    """Yield each way to render calls and find them in the rendering, with the samples that were found in this way.

    A way has a variant, which says how calls are put into a conversation, and a frame: the texts around the calls.

    Arguments as text are tried only if the template rejects objects, or prints objects as Python does. Servers pass
    objects to templates, and a template that accepts both may write text differently.
    """
    objects_work = False
    for variant in VARIANTS:
        if variant.as_text and objects_work:
            return
        for frame in find_frames(renderings, ONE, variant):
            samples = read_samples(renderings, frame, variant)
            if samples is None or ONE.name not in samples.one or "zq value" not in samples.one:
                continue
            if is_printed_object(samples.one, ONE.arguments):
                continue
            objects_work = objects_work or not variant.as_text
            yield variant, frame, samples


SOME_CALLS: Final = 8
"""Number of rendered turns that are used to check table keys which do not concern calls, such as `end_tokens`."""
_DEFAULTS: Final = {"name_key": "name", "arguments_key": "arguments", "id_key": "", "separator": "\n"}
"""Default values of table keys. A table need not contain a key whose value is the default."""


class _Attempt:
    """A candidate table, and the result of checking it."""

    def __init__(self, renderings: Renderings, name: str, variant: Variant, frame: Frame, table: Table) -> None:
        self._name = name
        self._renderings = renderings
        self._frame, self._variant = frame, variant
        self._rendered: Sequence[Rendered] = ()
        table = {key: value for key, value in table.items() if _DEFAULTS.get(key) != value}
        self.table: Table = {"name": name, "tier": _tier(table, renderings.special_tokens), **table}
        self.outcome = self._try()
        if self.outcome.holds:
            self._add_surroundings()

    def _try(self) -> Outcome:
        try:
            dialect = make_dialect(self.table, self._name)
        except UsageError as error:
            return Outcome(0, 0, 0, 0, 0, str(error))
        self._rendered, refused = render_trials(self._renderings, self._frame, self._variant, _markers(self.table))
        outcome = self._check(dialect, self._rendered)._replace(refused=refused)
        if outcome.problem or outcome.holds:
            return outcome
        few = f"the template renders only {outcome.read} of the calls that were requested"
        return outcome._replace(problem=few)

    def _check(self, dialect: Dialect, rendered: Sequence[Rendered], *, cut: bool = True) -> Outcome:
        return check(dialect, rendered, Tools([*trial_tools()]), allowed=self._allowed_fixes(), cut=cut)

    def _allowed_fixes(self) -> frozenset[str]:
        """Return the kinds of fixes that even correct calls may need, because of how the format writes values.

        `coerce` is always allowed. `json` is allowed if the format mixes JSON and Python, and `unwrap` if arguments are
        JSON in a string.
        """
        mixed = self.table.get("values") == ("json" if self.table["kind"] == "python" else "python")
        as_text = "{text}" in self.table.get("call", "")
        return frozenset(("coerce", *(["json"] if mixed else []), *(["unwrap"] if as_text else [])))

    def _add_surroundings(self) -> None:
        """Add the table keys for the text around calls, such as `end_tokens`, unless calls are misread with these keys.

        Unlike the check of the candidate table itself, this check does not read texts in two pieces.
        """
        table = {**self.table, **learn_surroundings(self._renderings, self._frame, self._variant)}
        with suppress(UsageError):
            if not self._check(make_dialect(table, self._name), self._rendered[:SOME_CALLS], cut=False).problem:
                self.table = table

    def learned(self, declaration: Declaration) -> Learned:
        """Return the learned dialect; it states what was verified, and whether the config's declaration was used."""
        outcome = self.outcome
        checks = [
            f"{outcome.read} calls read back, whole, character by character and cut in two",
            f"{outcome.written} calls written as the template writes them, white space aside",
        ]
        if outcome.written_otherwise:
            checks.append(
                f"{outcome.written_otherwise} calls with markup in their text, or text that looks like another type,"
                " are written in another way than the template's, and read back"
            )
        notes: list[str] = []
        if declaration.key and not declaration.problem:
            checks.append(f"calls are written as the config's {declaration.key} says")
        elif declaration.key:
            why = clip(declaration.problem)
            notes.append(f"the config's {declaration.key} is not used, and the template alone decides: {why}")
        if outcome.unread:
            notes.append(
                f"{outcome.unread} calls whose text holds a marker of the format are malformed: nothing is escaped"
            )
        if outcome.refused:
            notes.append(f"{outcome.refused} turns were not rendered by the template")
        if self.table["tier"] == "B":
            notes.append("its calls have no markers that prose could not hold: it is read only if it is requested")
        opened = opens_reasoning(self._renderings)
        if opened:
            notes.append(f"the prompt opens the reasoning with {opened}")
        return Learned(self._name, self.table, to_toml(self.table), tuple(checks), tuple(notes))


def _markers(table: Table) -> list[str]:
    """Return the markers in a table; some trials contain one of them inside a value."""
    texts = [*table.get("openers", {}), *table.get("openers", {}).values()]
    if table["kind"] == "python" and "" in table["openers"]:
        texts.append(")]")
    for key in ("call", "parameter", "argument", "wrapper", "header"):
        template = table.get(key, "").replace("{mark}", table.get("mark", ""))
        for piece in _PLACEHOLDERS.split(template):
            texts += _BETWEEN_TOKENS.split(piece.strip())
    return [text for text in texts if text.strip()]


def _tier(table: Table, special_tokens: frozenset[str]) -> str:
    """Return a table's tier, which depends on the marker that begins a call.

    S: a special token. A: a tag that prose could contain, though hardly by chance (`<tool_call>`). B: ordinary text.
    """
    prefix, mark = "".join(table.get("prefixes", ())), table.get("mark", "")
    template = table.get("wrapper") or table.get("call", "")
    begin = next(iter(table["openers"])) if "openers" in table else template.replace("{prefix}", prefix)
    opener = _PLACEHOLDERS.split(begin.replace("{mark}", mark))[0].strip()
    if _SENTINEL.match(opener) or (special_tokens and opener.startswith(tuple(special_tokens))):
        return "S"
    return "A" if _READABLE.match(opener.removeprefix(mark)) else "B"


_PLACEHOLDERS: Final = re.compile(r"\{\w+\}")
_BETWEEN_TOKENS: Final = re.compile(r"(?<=[>\])])(?=[<\[(])|\s+")
_SENTINEL: Final = re.compile(r"<[|｜][^<>\s]+[|｜]?[^<>]*>|\[/?[A-Z]+(?:_[A-Z]+)+\]|<[A-Z]+_[0-9]+>")
"""Matches a marker that looks like a special token, such as `<|call|>`. Prose contains no such marker."""
_READABLE: Final = re.compile(r"<[^<>\s]+|\[{1,3}[^\[\]\s]+\]|\({2,3}[^()\s]+\)|[⟦【«「『《〈⟪✿]|([@#%$§])\1")
"""Matches a marker that prose could contain, though hardly by chance, such as `<tool_call>`."""


def to_toml(table: Mapping[str, Any]) -> str:
    """Write a table as TOML: texts, flags and lists first, then the tables inside it."""
    lines = [f"{key} = {toml_value(value)}" for key, value in table.items() if not is_object(value)]
    for key, value in table.items():
        if is_object(value):
            lines += ["", f"[{key}]", *(f"{toml_value(inner)} = {toml_value(text)}" for inner, text in value.items())]
    return "\n".join(lines) + "\n"
