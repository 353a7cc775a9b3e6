"""Agents: a loop in which a model calls tools until it answers.

The package also holds what the loop uses: limits, policies, compaction of long conversations, and tapes, which record
runs.
"""

from promptools.harness.agent.agent import Agent
from promptools.harness.agent.compaction import Compaction
from promptools.harness.agent.policies import DEFAULT_POLICY, PAPER_POLICY, AgentPolicy
from promptools.harness.agent.run_events import (
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
from promptools.harness.agent.run_limits import RunLimits
from promptools.harness.agent.tape import TapeMismatch, read_tape
from promptools.harness.agent.tool_runs import run_tools, run_tools_async
from promptools.harness.agent.toolbox import Approve, Change, Deny, RunContext
from promptools.harness.agent.trajectory import trajectory

__all__ = [
    "DEFAULT_POLICY",
    "PAPER_POLICY",
    "Agent",
    "AgentPolicy",
    "Approve",
    "CallEvent",
    "Change",
    "Compaction",
    "CompactionEvent",
    "Deny",
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
