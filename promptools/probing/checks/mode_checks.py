"""Modes: the call as an app gets it through promptools, in each mode that is possible; and the raw endpoint."""

from __future__ import annotations

import re

from promptools.probing.answers import Answer, ProbeRequest
from promptools.probing.findings import Finding, Steps, Subject, failure
from promptools.probing.questions import CALL, WEATHER
from promptools.types import ModeName

COMPLETIONS = "/completions"
MODES: tuple[ModeName, ...] = ("native", "raw", "harmony", "prompt")
_MARKER = re.compile(r"<[|｜][^<>\s]{1,64}[|｜]>|</?[a-z_]*tool_calls?(?:_begin|_section)?>|\[TOOL_CALLS\]")
"""What a template writes as special tokens around a call."""


def mode_check(mode: ModeName) -> str:
    """Return the name of the check of a mode."""
    return f"mode {mode}"


def check_raw_endpoint(subject: Subject) -> Steps:
    """Continue a text without a chat template."""
    check = "raw completions"
    body = {"model": subject.model, "prompt": "One, two, three,", "max_tokens": 8}
    answer = yield ProbeRequest(body, path=COMPLETIONS)
    if answer.failed and answer.status in {404, 405, 501}:
        return [Finding(check, "absent", answer.describe_error())]
    if answer.failed:
        return [failure(check, answer)]
    if answer.content:
        return [Finding(check, "works", f"/v1/completions goes on with {answer.describe_text()}")]
    return [Finding(check, "accepted", "/v1/completions answers, here without text")]


def check_modes(subject: Subject) -> Steps:
    """Ask for a call through promptools in each mode that is possible here."""
    findings: list[Finding] = []
    raw_texts: list[str] = []
    for mode in MODES:
        why = _impossible(mode, subject)
        if why:
            findings.append(Finding(mode_check(mode), "absent", why))
            continue
        answer = yield ProbeRequest(subject.body(CALL, tools=[WEATHER]), mode=mode)
        findings.append(_judge_mode(mode, answer))
        if mode in {"raw", "harmony"}:
            raw_texts.append(answer.raw)
    return [*findings, _judge_tokens(raw_texts)]


def _impossible(mode: ModeName, subject: Subject) -> str | None:
    profile = subject.profile
    left_out = "native" not in profile.modes and subject.verdict("native tools") != "works"
    if mode in {"native", "raw"} and left_out:
        return "the profile leaves native mode out, as of a model whose template shows it no tools"
    if mode in {"raw", "harmony"} and not profile.raw:
        return "no raw endpoint is known for this kind of server"
    if mode == "raw" and not (profile.template_endpoint or profile.chat_template):
        return "nothing is known that renders the model's chat template"
    if mode == "raw" and "harmony" in profile.modes:
        return "harmony mode does the same for this family"
    if mode == "harmony" and "harmony" not in profile.modes and profile.family != "gpt-oss":
        return "it is for gpt-oss, and nothing says that this is one"
    return None


def _judge_mode(mode: ModeName, answer: Answer) -> Finding:
    check = mode_check(mode)
    reply = answer.reply
    if reply is not None and reply.calls:
        call = reply.calls[0]
        fixes = ", ".join(dict.fromkeys(fix.kind for fix in call.fixes))
        dialect = f", as {call.dialect}" if call.dialect else ""
        repaired = f", with fixes: {fixes}" if fixes else ""
        return Finding(check, "works", f"{call.name}({call.arguments_json}){dialect}{repaired}")
    attempts = reply.trace.attempts if reply is not None else ()
    if answer.failed:
        return failure(check, answer)
    if attempts and attempts[-1].outcome != "answered":
        return Finding(check, "errors", f"{attempts[-1].outcome}: {attempts[-1].why}")
    return Finding(check, "not shown", f"the model did not call: {answer.describe_text()}")


def _judge_tokens(raw_texts: list[str]) -> Finding:
    check = "special tokens in raw completions"
    if not raw_texts:
        return Finding(check, "not shown", "no mode of a raw endpoint is possible here")
    markers = dict.fromkeys(marker for text in raw_texts for marker in _MARKER.findall(text))
    if markers:
        return Finding(check, "works", f"kept: {' '.join(list(markers)[:4])}")
    return Finding(check, "not shown", "the reply had none")
