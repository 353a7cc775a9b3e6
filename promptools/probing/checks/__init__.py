"""The checks: each module has those of one subject. None does I/O."""

from __future__ import annotations

from collections.abc import Callable

from promptools.probing.checks.choice_checks import check_named, check_none, check_required
from promptools.probing.checks.history_checks import (
    check_context,
    check_names,
    check_results,
    check_system,
    check_turns,
)
from promptools.probing.checks.mode_checks import check_modes, check_raw_endpoint
from promptools.probing.checks.native_checks import check_native, check_parallel, check_streamed
from promptools.probing.checks.request_checks import (
    check_format,
    check_format_beside_tools,
    check_n,
    check_reasoning,
    check_usage,
)
from promptools.probing.findings import Steps, Subject

__all__ = ["CHECKS", "GROUPS"]

CHECKS: dict[str, tuple[Callable[[Subject], Steps], ...]] = {
    "native": (check_native, check_streamed, check_parallel),
    "tool_choice": (check_none, check_required, check_named),
    "history": (check_results, check_system, check_turns, check_names),
    "request": (check_format, check_format_beside_tools, check_n, check_usage, check_reasoning),
    "raw": (check_raw_endpoint,),
    "modes": (check_modes,),
    "context": (check_context,),
}
"""The groups of checks by the name that `--checks` takes, in the order in which they run. Later ones read the findings
of earlier ones."""

GROUPS = tuple(CHECKS)
