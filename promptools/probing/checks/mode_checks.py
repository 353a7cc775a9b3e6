"""Modes: the call as an app gets it through promptools, in each mode that is possible; and the raw endpoint."""

from __future__ import annotations

import json
import re

from promptools.probing.answers import BUSY, Answer, TrialRequest
from promptools.probing.findings import Finding, Steps, Subject, failure
from promptools.probing.questions import CALL, CONTINUED, WEATHER
from promptools.types import ModeName

COMPLETIONS = "/completions"
MODES: tuple[ModeName, ...] = ("native", "raw", "harmony", "prompt")
_MARKER = re.compile(r"<[|｜][^<>\s]{1,64}[|｜]>|</?[a-z_]*tool_calls?(?:_begin|_section)?>|\[TOOL_CALLS\]")
"""What a template writes as special tokens around a call."""
_ONE_MODE = "; nothing is left to try"
"""How the reason of a failure ends where no other mode may be tried."""


def mode_check(mode: ModeName) -> str:
    """Return the name of the check of a mode."""
    return f"mode {mode}"


def check_raw_endpoint(subject: Subject) -> Steps:
    """Continue a text without a chat template.

    Some servers put it into the template all the same: then it has as many tokens as the same text in a chat.
    """
    check = "raw completions"
    chat = yield subject.chat(CONTINUED, max_tokens=8)
    answer = yield TrialRequest({"model": subject.model, "prompt": CONTINUED, "max_tokens": 8}, path=COMPLETIONS)
    if answer.failed and answer.status in {404, 405, 501}:
        return [Finding(check, "absent", answer.describe_error())]
    if answer.failed:
        return [failure(check, answer)]
    if 0 < chat.prompt_tokens <= answer.prompt_tokens:
        reason = f"the prompt is put into the chat template: {answer.prompt_tokens} tokens, as in a chat"
        return [Finding(check, "ignored", reason)]
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
        answer = yield TrialRequest(subject.body(CALL, tools=[WEATHER]), mode=mode)
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
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        return Finding(check, "works", f"{call.name}({arguments}){dialect}{repaired}")
    last = answer.attempts[-1] if answer.attempts else None
    if last is not None and last.status in BUSY:
        return Finding(check, "not shown", f"the server was busy: {last.why}")
    if last is not None and last.outcome != "answered":
        return Finding(check, "errors", f"{last.outcome}: {last.why.removesuffix(_ONE_MODE)}")
    if answer.failed:
        return failure(check, answer)
    return Finding(check, "not shown", f"the model did not call: {answer.describe_text()}")


def _judge_tokens(raw_texts: list[str]) -> Finding:
    check = "special tokens in raw completions"
    if not raw_texts:
        return Finding(check, "not shown", "no mode of a raw endpoint is possible here")
    markers = dict.fromkeys(marker for text in raw_texts for marker in _MARKER.findall(text))
    if markers:
        return Finding(check, "works", f"kept: {' '.join(list(markers)[:4])}")
    return Finding(check, "not shown", "the reply had none")
