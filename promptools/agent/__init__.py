"""Agents: the loop in which a model calls tools until it answers, with its limits, policies, compaction and tape."""

from promptools.agent.agent import Agent
from promptools.agent.compaction.compaction_plan import Compaction
from promptools.agent.functions.run_context import RunContext
from promptools.agent.limits.run_limits import RunLimits
from promptools.agent.policies.agent_policy import DEFAULT_POLICY, PAPER_POLICY, AgentPolicy
from promptools.agent.run_events import (
    CallEvent,
    CompactionEvent,
    IterationLimitError,
    ReasoningEvent,
    ResultEvent,
    RetryEvent,
    RunEvent,
    StepEvent,
    TextEvent,
    Transcript,
)
from promptools.agent.tape.tape_player import TapeMismatch, read_tape
from promptools.agent.tool_runs import run_tools, run_tools_async
from promptools.agent.trajectory import trajectory

__all__ = [
    "DEFAULT_POLICY",
    "PAPER_POLICY",
    "Agent",
    "AgentPolicy",
    "CallEvent",
    "Compaction",
    "CompactionEvent",
    "IterationLimitError",
    "ReasoningEvent",
    "ResultEvent",
    "RetryEvent",
    "RunContext",
    "RunEvent",
    "RunLimits",
    "StepEvent",
    "TapeMismatch",
    "TextEvent",
    "Transcript",
    "read_tape",
    "run_tools",
    "run_tools_async",
    "trajectory",
]
