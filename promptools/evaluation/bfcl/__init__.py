"""The Berkeley Function Calling Leaderboard: its own package generates and checks, in a process of its own."""

from promptools.evaluation.bfcl.bfcl_process import BfclProcess, find_python
from promptools.evaluation.bfcl.bfcl_report import render_bfcl_report, summarize_answers
from promptools.evaluation.bfcl.bfcl_results import BfclAnswer, read_answers, remove_failures
from promptools.evaluation.bfcl.bfcl_run_log import BfclRunLog

__all__ = [
    "BfclAnswer",
    "BfclProcess",
    "BfclRunLog",
    "find_python",
    "read_answers",
    "remove_failures",
    "render_bfcl_report",
    "summarize_answers",
]
