"""What scripted models answer to the probe's questions, and a call by the config that it writes.

The models follow their templates, and know the answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from promptools.client import OpenAI
from promptools.lab.script import ScriptedReply
from promptools.lab.weather import prompt_mode_phrase
from promptools.probing import checks
from promptools.profiles import load_config
from promptools.types import Reply

Family = Literal["hermes", "harmony", "coder", "think"]
"""`think` writes what `hermes` writes, after thoughts that the template has opened."""

FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
WORDS = {
    checks.PLAIN: "Hello.",
    checks.NO_CALL: "You are welcome.",
    checks.SENTENCE: "Paris is a large city on the Seine.",
    checks.SECOND_TURN: "Seven.",
    checks.ASK_CODE: "heron",
    checks.RESULT: "It is foggy in Paris, at 18 degrees.",
    checks.THINK: "Five.",
    checks.CHOICES: "Blue.",
}

FORCED_FORMAT = {
    checks.SENTENCE: f'{{"probed_city": "Paris", "probed_size": "large"}}\n{WORDS[checks.SENTENCE]}',
}
FORCED_CALL = {checks.NO_CALL: f'{WORDS[checks.NO_CALL]}\n{{"city": "Paris"}}'}
"""What a scripted model of vLLM says where a grammar chooses: it leaves out what the grammar does not allow."""


def probe_lines(
    family: Family, dialect: str, *, forced: Mapping[str, str] = MappingProxyType({}), raw: bool = True
) -> Iterator[ScriptedReply]:
    """Yield the lines of a model; `dialect` is what prompt mode asks it for.

    `raw` is whether /v1/completions goes on with a text, and does not put it into the chat template.
    """
    prompted_call = _call("hermes") if dialect == "hermes" else FENCED
    for cue, text in {**WORDS, **forced}.items():
        yield ScriptedReply(cue, _text(family, text))
    for cue in (checks.CALL, checks.INSIST):
        yield ScriptedReply(cue, _call(family))
    yield ScriptedReply(checks.CALL, _text(family, prompted_call), setting=prompt_mode_phrase(dialect))
    yield ScriptedReply(checks.TWO_CALLS, _two_calls(family))
    yield ScriptedReply(checks.DOTTED_CALL, _call(family, "weather.now"))
    yield ScriptedReply(checks.CONTINUED, " four, five" if raw else _text(family, "four, five"))


def hermes() -> list[ScriptedReply]:
    """Return the lines of a model with Hermes tags that knows nothing else."""
    return [*probe_lines("hermes", "json"), ScriptedReply(None, "I do not know.")]


def _text(family: Family, text: str) -> str:
    match family:
        case "harmony":
            form = " <|constrain|>json" if text.startswith("{") else ""
            return f"<|channel|>final{form}<|message|>{text}<|return|>"
        case "think":
            return f"Simple.\n</think>\n\n{text}"
        case _:
            return text


def _call(family: Family, name: str = "get_weather", city: str = "Paris") -> str:
    match family:
        case "harmony":
            thought = "<|channel|>analysis<|message|>Need the tool.<|end|><|start|>assistant"
            head = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
            return f'{thought}{head}{{"city": "{city}"}}<|call|>'
        case "coder":
            parameter = f"<parameter=city>\n{city}\n</parameter>"
            return f"<tool_call>\n<function={name}>\n{parameter}\n</function>\n</tool_call>"
        case "think":
            return f"Need the tool.\n</think>\n\n{_call('hermes', name, city)}"
        case "hermes":
            return f'<tool_call>\n{{"name": "{name}", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


def _two_calls(family: Family) -> str:
    """Return both calls; gpt-oss writes one in a turn, which its end token ends."""
    if family == "harmony":
        return _call(family)
    second = _call("hermes" if family == "think" else family, city="Rome")
    return f"{_call(family)}\n{second}"


def check_written(path: Path, provider: str, model: str, mode: str) -> None:
    """Ask for a call by a config that the probe wrote, whole and streamed: `mode` must answer at once."""
    replies: list[Reply] = []
    keys: dict[str, Any] = {"api_key": "none", "max_retries": 0, "timeout": 60, "on_reply": replies.append}
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": checks.CALL}], "tools": [checks.WEATHER]}
    with OpenAI(config=load_config(path), provider=provider, **keys) as client:
        client.chat.completions.create(model=model, **asked)
        list(client.chat.completions.create(model=model, stream=True, **asked))
    assert len(replies) == 2
    for reply in replies:
        assert [(call.name, call.arguments) for call in reply.calls] == [("get_weather", {"city": "Paris"})]
        assert [(attempt.mode, attempt.outcome) for attempt in reply.trace.attempts] == [(mode, "answered")]
