"""What the retry loop decides by: the table of failures and remedies, the circuit breaker, and the retry policy."""

from promptools.fallback.breaker import Breaker, BreakerState, Key
from promptools.fallback.overflow import Overflow, fitting, read_overflow
from promptools.fallback.policy import Policy, PolicyState, Stop, WaitFor
from promptools.fallback.salvage import Salvage, salvage
from promptools.fallback.table import (
    COUNTED,
    LASTING,
    NOT_COUNTED,
    REMEDIES,
    RULES,
    FailureKind,
    Mend,
    Rule,
    Step,
    classify,
    explain,
)
from promptools.fallback.windows import Windows

__all__ = [
    "COUNTED",
    "LASTING",
    "NOT_COUNTED",
    "REMEDIES",
    "RULES",
    "Breaker",
    "BreakerState",
    "FailureKind",
    "Key",
    "Mend",
    "Overflow",
    "Policy",
    "PolicyState",
    "Rule",
    "Salvage",
    "Step",
    "Stop",
    "WaitFor",
    "Windows",
    "classify",
    "explain",
    "fitting",
    "read_overflow",
    "salvage",
]
