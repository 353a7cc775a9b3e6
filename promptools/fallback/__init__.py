"""Which attempt next, and why: the table of failures, the breaker, the policies, what an error text still holds."""

from promptools.fallback.breaker import Breaker, BreakerState, Key
from promptools.fallback.policy import Policy, PolicyState, Stop, WaitFor
from promptools.fallback.salvage import Salvage, salvage
from promptools.fallback.table import (
    LASTING,
    OF_THE_REQUEST,
    REMEDIES,
    RULES,
    FailureKind,
    Mend,
    Rule,
    Step,
    classify,
    explain,
)

__all__ = [
    "LASTING",
    "OF_THE_REQUEST",
    "REMEDIES",
    "RULES",
    "Breaker",
    "BreakerState",
    "FailureKind",
    "Key",
    "Mend",
    "Policy",
    "PolicyState",
    "Rule",
    "Salvage",
    "Step",
    "Stop",
    "WaitFor",
    "classify",
    "explain",
    "salvage",
]
