"""Two models whose calls llama.cpp does not read, for agents that end by an answer and for those that end by a call."""

import json

from promptools.lab import weather
from promptools.lab.script import ScriptedReply

FRUIT = "Which fruit is named in fruit.txt?"
NAMED = "fruit.txt names the quince tree."
ENDS_BY_CALL = "final_answer"
"""A tool of smolagents: without a call of it there is no end."""


def _broken(name: str, **arguments: str) -> str:
    """Write a call as gpt-oss has done, with a header that llama.cpp answers with HTTP 500."""
    header = f"<|channel|>commentary–– to=functions.{name} <|constrain|>json<|message|>"
    return f"{header}{json.dumps(arguments, ensure_ascii=False)}<|call|>"


def gpt_oss() -> list[ScriptedReply]:
    return [
        *weather.gpt_oss_script(),
        ScriptedReply(weather.RESULT, _broken(ENDS_BY_CALL, answer=weather.ANSWER), setting=ENDS_BY_CALL),
        ScriptedReply(FRUIT, _broken("read", filePath="fruit.txt")),
        ScriptedReply("quince", f"<|channel|>final<|message|>{NAMED}<|return|>"),
    ]


def _quoted(name: str, **arguments: str) -> str:
    """Write a call as small models do: Python's quotes, a comma too many."""
    return f"<tool_call>\n{{'name': '{name}', 'arguments': {arguments!r},}}\n</tool_call>"


def small() -> list[ScriptedReply]:
    return [
        ScriptedReply(weather.QUESTION, _quoted(weather.NAME, city="Paris")),
        ScriptedReply(weather.RESULT, weather.ANSWER),
        ScriptedReply(weather.RESULT, _quoted(ENDS_BY_CALL, answer=weather.ANSWER), setting=ENDS_BY_CALL),
        ScriptedReply(None, f"I only know one question: {weather.QUESTION}"),
    ]
