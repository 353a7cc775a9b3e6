"""Two models whose calls llama.cpp does not read, for agents that end by an answer and for those that end by a call."""

import json
from dataclasses import dataclass

from promptools.lab import weather
from promptools.lab.script import ScriptedReply, SpecialTokens

NAMED = "fruit.txt names the quince tree."
_COMMON = """the type string false true properties when to parameters and for required status agent function object goal
is defaults work delegated strict user task name or only message explicit mention parallel blocked not concrete model
that budget default current override this tasks delegate multiple needed requested agents token tool tools you your
items output before image file files with without next available are local boolean array number integer an should
instructions same by it use command commands run request because input code path text content read write value list
if as of in on be from will must can more than any has have do into other used using set which"""
ENDS_BY_CALL = "final_answer"
"""A tool of smolagents: without a call of it there is no end."""


@dataclass(frozen=True)
class Agent:
    """What a coding agent is asked, and what the model calls then."""

    question: str
    tool: str
    arguments: dict[str, str]


AGENTS = {
    "opencode": Agent("Which fruit is named in fruit.txt?", "read", {"filePath": "fruit.txt"}),
    "codex": Agent("Which fruit does Codex find in fruit.txt?", "exec_command", {"cmd": "cat fruit.txt"}),
    "claude-code": Agent("Which fruit does Claude Code find in fruit.txt?", "Read", {"file_path": "fruit.txt"}),
}
WORDS = SpecialTokens(
    words=(
        *('": "', '", "', '": {"', '": {', '"}', '"]', '"type": "string"', '"description": "', "additionalProperties"),
        *(f" {word}" for word in _COMMON.split()),
    )
)
"""The prompts of coding agents are long: their most frequent words are one token each."""


def _broken(name: str, **arguments: str) -> str:
    """Write a call as gpt-oss has done, with a header that llama.cpp answers with HTTP 500."""
    header = f"<|channel|>commentary–– to=functions.{name} <|constrain|>json<|message|>"
    return f"{header}{json.dumps(arguments, ensure_ascii=False)}<|call|>"


def gpt_oss() -> list[ScriptedReply]:
    return [
        *weather.gpt_oss_script(),
        ScriptedReply(weather.RESULT, _broken(ENDS_BY_CALL, answer=weather.ANSWER), setting=ENDS_BY_CALL),
        ScriptedReply(weather.QUESTION, _broken("PartialGetWeather", city="Paris"), setting="PartialGetWeather"),
        *(ScriptedReply(agent.question, _broken(agent.tool, **agent.arguments)) for agent in AGENTS.values()),
        ScriptedReply("quince", f"<|channel|>final<|message|>{NAMED}<|return|>"),
    ]


def _quoted(name: str, **arguments: str) -> str:
    """Write a call as small models do: Python's quotes, a comma too many."""
    return f"<tool_call>\n{{'name': '{name}', 'arguments': {arguments!r},}}\n</tool_call>"


def leaking() -> list[ScriptedReply]:
    """Return the script of a model that calls in the format of another family: llama.cpp takes that for text."""
    call = f"<function={weather.NAME}>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
    return [
        ScriptedReply(weather.QUESTION, call),
        ScriptedReply(weather.RESULT, weather.ANSWER),
        ScriptedReply(None, f"I only know one question: {weather.QUESTION}"),
    ]


def small() -> list[ScriptedReply]:
    return [
        ScriptedReply(weather.QUESTION, _quoted(weather.NAME, city="Paris")),
        ScriptedReply(weather.RESULT, weather.ANSWER),
        ScriptedReply(weather.RESULT, _quoted(ENDS_BY_CALL, answer=weather.ANSWER), setting=ENDS_BY_CALL),
        ScriptedReply(None, f"I only know one question: {weather.QUESTION}"),
    ]
