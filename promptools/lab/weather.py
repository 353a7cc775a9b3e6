"""The demo's conversation about the weather, and the scripts of two models, one of which breaks the server's parser."""

from __future__ import annotations

from typing import Any

from promptools import dialects
from promptools.lab.script import ScriptedReply
from promptools.schema import Tools

QUESTION = "What is the weather in Paris right now?"
ANSWER = "It is 18 °C in Paris under a clear sky ☀."
NAME = "get_weather"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Tell the current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city."},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city"],
        },
    },
}

RESULT = "clear sky, 18 degrees"
_TAGGED = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
_FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
_THOUGHT = "<|channel|>analysis<|message|>The user wants weather: use the tool.<|end|><|start|>assistant"


def get_weather(city: str) -> str:
    """Return the weather in a city. Every city has the same weather."""
    return f"{city}: {RESULT}"


def prompt_mode_phrase(dialect: str = "json") -> str:
    """Return a phrase that occurs in every prompt that asks for calls in `dialect`, whatever the tools are.

    Use it as the `setting` of a `ScriptedReply`.
    """
    block = dialects.get(dialect).render_tools
    one = Tools([TOOL])
    other = Tools(
        [{"name": "ask", "parameters": {"type": "object"}}, {"name": "tell", "parameters": {"type": "object"}}]
    )
    texts = [block(tools, parallel=flag, required=flag) for tools in (one, other) for flag in (True, False)]
    shared = [line for line in texts[0].splitlines() if all(line in text.splitlines() for text in texts)]
    return max(shared, key=len)


def hermes_script() -> list[ScriptedReply]:
    """Return the script of a model that writes correct calls: in Hermes tags, or in a fenced block in prompt mode."""
    return [
        ScriptedReply(QUESTION, _TAGGED),
        ScriptedReply(QUESTION, f"I will look that up.\n\n{_FENCED}", setting=prompt_mode_phrase()),
        ScriptedReply(RESULT, ANSWER),
        ScriptedReply(None, f"I only know one question: {QUESTION}"),
    ]


def gpt_oss_script() -> list[ScriptedReply]:
    """Return the script of a model whose native calls break the server's parser; its calls in prompt mode do not.

    The real gpt-oss has been seen to write the same junk, two dashes, in a message's header (vllm-project/vllm#23567).
    """
    broken = '<|channel|>commentary–– to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
    return [
        ScriptedReply(QUESTION, _THOUGHT + broken),
        ScriptedReply(
            QUESTION, f"{_THOUGHT}<|channel|>final<|message|>{_FENCED}<|return|>", setting=prompt_mode_phrase()
        ),
        ScriptedReply(RESULT, f"<|channel|>final<|message|>{ANSWER}<|return|>"),
        ScriptedReply(None, f"<|channel|>final<|message|>I only know one question: {QUESTION}<|return|>"),
    ]
