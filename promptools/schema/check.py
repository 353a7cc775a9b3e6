"""Fit arguments to a tool: declared names for their keys, validation, and coercion only if that fails."""

from __future__ import annotations

from typing import Any, NamedTuple

from promptools.errors import clip
from promptools.schema.fitting import argument_keys
from promptools.schema.fitting.budget import UncheckedError
from promptools.schema.fitting.validate import describe_errors
from promptools.schema.prepared_tool import CompiledSchema, PreparedTool
from promptools.types import Fix

_UNWRAPPED = Fix("unwrap", f"the arguments were under {argument_keys.WRAPPER!r}")


class Checked(NamedTuple):
    """Arguments as the tool takes them, the fixes that were applied, and the errors that remain.

    Each of `errors` is a sentence with the JSON pointer of the value, what is wrong and what is expected, and can be
    sent to the model as it is. Valid arguments are returned unchanged, as the same object.
    """

    arguments: dict[str, Any]
    fixes: tuple[Fix, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def verified(self) -> bool:
        """Whether the arguments were found valid, and not just accepted because validation was abandoned."""
        return not self.errors and all(fix.kind != "unchecked" for fix in self.fixes)


def check(entry: PreparedTool, arguments: dict[str, Any], text: str | None, *, guess: bool, split: bool) -> Checked:
    """Fit arguments to a tool.

    `guess`: the only undeclared key may be taken for the only missing parameter; `split`: a key may hold its value.
    """
    shape = entry.compiled
    if shape.declared.issuperset(arguments):
        return _validate_and_coerce(entry, arguments, (), text)
    inner = argument_keys.unwrap_arguments(arguments, shape.declared)
    if inner is not None and not (shape.allows_extra and shape.required.issubset(arguments)):
        result = _check_renamed(entry, inner, None, guess=guess, split=split)
        if result.verified and shape.declared.issuperset(result.arguments):
            return result._replace(fixes=(_UNWRAPPED, *result.fixes))
    return _check_renamed(entry, arguments, text, guess=guess, split=split)


def _check_renamed(
    entry: PreparedTool, arguments: dict[str, Any], text: str | None, *, guess: bool, split: bool
) -> Checked:
    shape = entry.compiled
    allowed = shape.required if shape.allows_extra else None
    arguments, fixes = argument_keys.rename_keys(arguments, shape.spellings, entry.aliases, entry.tool.aliases, allowed)
    result = _validate_and_coerce(entry, arguments, fixes, text)
    if not result.errors:
        return result
    whole, splits = argument_keys.split_keys(arguments, shape.declared) if split else (arguments, ())
    if splits and _is_surely_valid(shape, whole):
        return Checked(whole, fixes + splits)
    if not guess or shape.allows_extra:
        return result
    guessed, more = argument_keys.guess_key(arguments, shape.declared, shape.required)
    if not more:
        return result
    other = _validate_and_coerce(entry, guessed, fixes + more, text)
    return other if other.verified else result


def _is_surely_valid(shape: CompiledSchema, arguments: dict[str, Any]) -> bool:
    """Whether arguments are valid as they are; never raises on a value."""
    try:
        return shape.is_surely_valid(arguments)
    except Exception:  # noqa: BLE001  `_validate_and_coerce` reports what it is
        return False


def _validate_and_coerce(
    entry: PreparedTool, arguments: dict[str, Any], fixes: tuple[Fix, ...], text: str | None
) -> Checked:
    """Validate arguments and coerce what does not fit. Never raises on a value.

    Arguments that could not be validated are accepted, with a fix that says so; a `strict` tool rejects them.
    """
    shape = entry.compiled
    try:
        if shape.is_surely_valid(arguments):
            return Checked(arguments, fixes)
        from promptools.schema.fitting import coerce

        value, more, errors = coerce.coerce_value(arguments, shape.errors, coerce.number_lookup(text))
        return Checked(value, fixes + more, describe_errors(errors))
    except UncheckedError as error:
        why = f"not validated: {error}"
        if entry.tool.strict:
            return Checked(arguments, fixes, (f"arguments: {why}",))
        return Checked(arguments, (*fixes, Fix("unchecked", why)))
    except RecursionError:
        return Checked(arguments, fixes, ("arguments: nested too deeply to be checked; nest them less",))
    except Exception as error:  # noqa: BLE001  whatever a validator raises on a model's value, the value is at fault
        return Checked(arguments, fixes, (f"arguments: cannot be checked: {clip(str(error))}",))
