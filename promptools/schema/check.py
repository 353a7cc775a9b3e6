"""Fit arguments to a tool: declared names for their keys, validation, and coercion only if that fails."""

from __future__ import annotations

from typing import Any, NamedTuple

from promptools.errors import clip
from promptools.schema import keys
from promptools.schema.budget import UncheckedError
from promptools.schema.entry import Entry
from promptools.schema.validate import sentences
from promptools.types import Fix

_UNWRAPPED = Fix("unwrap", f"the arguments stood under {keys.WRAPPER!r}")


class Checked(NamedTuple):
    """Arguments as the tool takes them, the fixes that were applied, and the errors that remain.

    Each of `errors` is a sentence with the JSON pointer of the value, what is wrong and what is expected, and can be
    sent to the model as it is. Valid arguments are returned unchanged, as the same object.
    """

    arguments: dict[str, Any]
    fixes: tuple[Fix, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def sure(self) -> bool:
        """Whether the arguments were found valid, and not just accepted because validation was abandoned."""
        return not self.errors and all(fix.kind != "unchecked" for fix in self.fixes)


def check(entry: Entry, arguments: dict[str, Any], text: str | None, *, guess: bool) -> Checked:
    """Fit arguments to a tool. `guess`: the only undeclared key may be taken for the only missing parameter."""
    shape = entry.shape
    if shape.declared.issuperset(arguments):
        return _fitted(entry, arguments, (), text)
    inner = keys.unwrapped(arguments, shape.declared)
    if inner is not None and not (shape.open and shape.required.issubset(arguments)):
        result = _renamed(entry, inner, None, guess=guess)
        if result.sure and shape.declared.issuperset(result.arguments):
            return result._replace(fixes=(_UNWRAPPED, *result.fixes))
    return _renamed(entry, arguments, text, guess=guess)


def _renamed(entry: Entry, arguments: dict[str, Any], text: str | None, *, guess: bool) -> Checked:
    """Fit arguments that have undeclared keys."""
    shape = entry.shape
    allowed = shape.required if shape.open else None
    arguments, fixes = keys.rename(arguments, shape.spellings, entry.aliases, entry.tool.aliases, allowed)
    result = _fitted(entry, arguments, fixes, text)
    if not guess or shape.open or not result.errors:
        return result
    guessed, more = keys.guess(arguments, shape.declared, shape.required)
    if not more:
        return result
    other = _fitted(entry, guessed, fixes + more, text)
    return other if other.sure else result


def _fitted(entry: Entry, arguments: dict[str, Any], fixes: tuple[Fix, ...], text: str | None) -> Checked:
    """Validate arguments and coerce what does not fit. Never raises on a value."""
    shape = entry.shape
    try:
        if shape.surely_fits(arguments):
            return Checked(arguments, fixes)
        from promptools.schema import coerce

        value, more, errors = coerce.mend(arguments, shape.errors, coerce.spelled(text))
        return Checked(value, fixes + more, sentences(errors))
    except UncheckedError as error:
        return _unchecked(entry, arguments, fixes, f"not validated: {error}")
    except RecursionError:
        return Checked(arguments, fixes, ("arguments: nested too deeply to be checked; nest them less",))
    except Exception as error:  # noqa: BLE001  whatever a validator raises on a model's value, the value is at fault
        return Checked(arguments, fixes, (f"arguments: cannot be checked: {clip(str(error))}",))


def _unchecked(entry: Entry, arguments: dict[str, Any], fixes: tuple[Fix, ...], why: str) -> Checked:
    """Accept arguments that could not be validated, with a fix that says so; a `strict` tool rejects them."""
    if entry.tool.strict:
        return Checked(arguments, fixes, (f"arguments: {why}",))
    return Checked(arguments, (*fixes, Fix("unchecked", why)))
