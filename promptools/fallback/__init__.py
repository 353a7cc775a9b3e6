"""The rules for retries: the table of failures and remedies, the circuit breaker, and the retry policy."""

from promptools.fallback.breaker import Breaker, BreakerKey, BreakerState
from promptools.fallback.overflow import ContextSizes, Overflow, fitting_context, read_overflow
from promptools.fallback.refusals import Refusals, Rewording
from promptools.fallback.retry_policy import RetryPolicy, RetryState, Stop, WaitFor
from promptools.fallback.rules import (
    COUNTED_KINDS,
    LASTING_KINDS,
    REFUSAL_KINDS,
    REMEDIES,
    RULES,
    Adaptation,
    FailureKind,
    ModelText,
    Remedy,
    Rule,
    classify,
    find_model_text,
    match_rule,
)

__all__ = [
    "COUNTED_KINDS",
    "LASTING_KINDS",
    "REFUSAL_KINDS",
    "REMEDIES",
    "RULES",
    "Adaptation",
    "Breaker",
    "BreakerKey",
    "BreakerState",
    "ContextSizes",
    "FailureKind",
    "ModelText",
    "Overflow",
    "Refusals",
    "Remedy",
    "RetryPolicy",
    "RetryState",
    "Rewording",
    "Rule",
    "Stop",
    "WaitFor",
    "classify",
    "find_model_text",
    "fitting_context",
    "match_rule",
    "read_overflow",
]
