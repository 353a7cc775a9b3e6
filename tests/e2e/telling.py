"""Say in a few words what an app saw of an answer: the cells of the page of results."""

from __future__ import annotations

import contextlib
import json
from itertools import groupby

import results
from asking import FORMS, Form, Got
from rigs import Rig
from table import Case

from promptools.harness.agent.loop_effects import AccumulatedReply

LONGEST = 90


def row(
    rig: Rig, case: Case, alone: dict[Form, Got], ours: dict[Form, Got], raw: dict[Form, Got] | None
) -> results.Row:
    """Write the row of the page; `raw` is None where the case is not for raw mode."""
    return results.Row(
        rig=rig.name,
        title=rig.title,
        case=case.name,
        about=f"{case.why} ({case.source})" if case.why and case.source else case.why or case.source,
        alone=_both({form: told(got) for form, got in alone.items()}),
        same=all(right(case.when(form), alone[form]) and told(alone[form]) == told(ours[form]) for form in FORMS),
        seen=_both({form: told(got) for form, got in ours.items()}),
        by=_both({form: by(got) for form, got in ours.items()}),
        raw=_in_raw_mode(rig, case, raw),
    )


def _in_raw_mode(rig: Rig, case: Case, raw: dict[Form, Got] | None) -> str:
    here = case.in_raw_mode(rig.name, rig.family)
    if raw is None or here is None:
        return "-" if rig.raw else ""
    if all(right(here.when(form), got) for form, got in raw.items()):
        return results.WANTED
    return _both({form: told(got) for form, got in raw.items()})


def right(case: Case, got: Got) -> bool:
    """Return whether an answer is what the row wants."""
    if got.error is not None or case.error or len(got.choices) != case.request.get("n", 1):
        return False
    return (
        all(choice.finish_reason == case.ends() for choice in got.choices.values())
        and all(
            [_call(call.name, call.arguments) for call in choice.calls] == _wanted(case)
            for choice in got.choices.values()
        )
        and (case.content is None or got.content.strip() == case.content)
        and (case.reasoning is None or got.reasoning.strip() == case.reasoning)
    )


def _wanted(case: Case) -> list[str]:
    return [_call(name, json.dumps(arguments)) for name, arguments in case.calls]


def told(got: Got) -> str:
    """Say what was seen: an error, or of each choice its calls, words and end."""
    if got.error is not None:
        status = "an error in the stream" if got.status is None else f"HTTP {got.status}"
        return f"{status}: {_code(got.problem)}"
    choices = [_choice(choice) for _, choice in sorted(got.choices.items())]
    return f"{len(choices)} times: {choices[0]}" if len(set(choices)) == 1 < len(choices) else "; then ".join(choices)


def _choice(choice: AccumulatedReply) -> str:
    calls = [_code(_call(call.name, call.arguments)) for call in choice.calls]
    words = [_code(choice.content.strip())] if choice.content.strip() else []
    said = ", ".join([*words, *calls]) or ("nothing but thoughts" if choice.reasoning.strip() else "nothing")
    match choice.finish_reason:
        case None:
            return f"{said}, and no end"
        case "length":
            return f"{said}, cut off"
        case "stop" if calls:
            return f"{said}, finish reason stop"
        case _:
            return said


def by(got: Got) -> str:
    """Say which requests it took."""
    if got.error is not None:
        return "no mode"
    if not got.attempts:
        return "untouched"
    steps = [(step, len(list(same))) for step, same in groupby(f"{mode}: {outcome}" for mode, outcome in got.attempts)]
    return ", then ".join(step if count == 1 else f"{step} ({count} times)" for step, count in steps)


def _call(name: str, arguments: str) -> str:
    with contextlib.suppress(ValueError):
        arguments = json.dumps(json.loads(arguments), ensure_ascii=False, sort_keys=True)
    return f"{name}({arguments})"


def _code(text: str) -> str:
    text = " ".join(text.split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _both(texts: dict[Form, str]) -> str:
    if len(set(texts.values())) == 1:
        return texts["whole"]
    return "; ".join(f"{form}: {texts[form]}" for form in FORMS)
