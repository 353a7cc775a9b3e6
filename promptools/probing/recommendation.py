"""Recommendations that follow from findings: the order of modes, each with a reason, and the facts for a profile.

`write_provider` turns a recommendation into the entry of a provider in a config.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.json_values import toml_value
from promptools.probing.checks import MODES, mode_check
from promptools.probing.findings import PROBLEMS, Finding
from promptools.profiles import Profile
from promptools.profiles.profile import GENERIC
from promptools.types import ModeName

if TYPE_CHECKING:
    from promptools.probing.findings import Subject


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The recommended changes to a profile: the `modes` to try, in order, and the `facts` to change.

    `left_out` holds the modes to avoid. Each mode is paired with a reason.
    """

    modes: tuple[tuple[ModeName, str], ...]
    left_out: tuple[tuple[ModeName, str], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


def recommend(findings: Sequence[Finding], profile: Profile) -> Recommendation:
    """Return the recommendation that follows from `findings` for a server and model with `profile`.

    Modes that work come first, in the profile's order. Then come the profile's modes in which the model made no call
    when asked. Modes that failed are left out. A mode that the profile does not list is added only if it works. If no
    mode works, the profile's order is kept.
    """
    by_check = {finding.check: finding for finding in findings}
    working: list[tuple[ModeName, str]] = []
    unproved: list[tuple[ModeName, str]] = []
    left_out: list[tuple[ModeName, str]] = []
    for mode in _order(profile):
        finding = by_check.get(mode_check(mode))
        if finding is None or (finding.verdict == "absent" and mode not in profile.modes):
            continue
        if finding.verdict == "works":
            native = by_check.get("native tools") if mode == "native" else None
            working.append((mode, _why_it_works(finding, native)))
        elif finding.verdict == "not shown" and mode in profile.modes:
            unproved.append((mode, finding.reason))
        elif finding.verdict != "not shown":
            left_out.append((mode, finding.reason))
    if not working:
        asked = any(mode_check(mode) in by_check for mode in MODES)
        shown = "no mode has shown a call" if asked else "the modes were not checked"
        why = f"{shown}: the order is the one that is known"
        known: tuple[tuple[ModeName, str], ...] = tuple((mode, why) for mode in profile.modes)
        return Recommendation(known, (), _facts(findings, profile, profile.modes))
    chosen = (*working, *unproved)
    facts = _facts(findings, profile, tuple(mode for mode, _ in chosen))
    return Recommendation(chosen, tuple(left_out), facts)


def _order(profile: Profile) -> tuple[ModeName, ...]:
    """Return all modes: the profile's modes in their order, and the other modes.

    The other modes go before prompt mode, which works with any server. If the profile prefers prompt mode to native
    mode, the other modes go last, because measurements have shown that the model calls best in prompt mode.
    """
    known = profile.modes
    extra: list[ModeName] = [mode for mode in MODES if mode not in known]
    at = known.index("prompt") if "prompt" in known else len(known)
    if "native" in known[at:]:
        at = len(known)
    return (*known[:at], *extra, *known[at:])


def _why_it_works(finding: Finding, native: Finding | None) -> str:
    """Return the reason to recommend a mode. For native mode, it says what the server alone gets wrong, if anything."""
    if native is not None and native.verdict in PROBLEMS:
        return f"the server alone {native.verdict}, promptools gets the call: {finding.reason}"
    return finding.reason


def _facts(findings: Sequence[Finding], profile: Profile, modes: tuple[ModeName, ...]) -> dict[str, Any]:
    """Return the facts that differ from the profile: the `modes`, and the facts in the findings.

    If several findings have a fact with the same key, the value in the last finding is used.
    """
    facts: dict[str, Any] = {} if modes == profile.modes else {"modes": list(modes)}
    for finding in findings:
        facts.update(finding.facts)
    return {key: value for key, value in facts.items() if not _same(getattr(profile, key), value)}


def _same(known: Any, value: Any) -> bool:
    return bool(known == (frozenset(value) if isinstance(known, frozenset) else value))


# The recommendation as a provider of a config, in TOML.


def write_provider(
    name: str, base_url: str, key_variable: str | None, subject: Subject, recommendation: Recommendation
) -> str:
    """Return a config, in TOML, with the server as a provider and the recommended facts in the profile of its model.

    `base_url` must not contain credentials. `key_variable` names the environment variable with the key, if any.
    """
    kind = subject.profile.kind
    provider = {
        **({"kind": kind} if kind != GENERIC else {}),
        "base_url": base_url,
        **({"api_key_env": key_variable} if key_variable else {}),
        "default_model": subject.model,
    }
    lines = [f"[providers.{toml_value(name)}]", *_pairs(provider)]
    if recommendation.facts:
        table = f"[providers.{toml_value(name)}.models.{toml_value(subject.model)}.profile]"
        lines += ["", table, *_pairs(recommendation.facts)]
    return "\n".join(lines) + "\n"


def _pairs(table: Any) -> list[str]:
    return [f"{key} = {toml_value(value)}" for key, value in table.items()]
