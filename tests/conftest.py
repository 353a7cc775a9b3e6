"""Puts this folder on the import path, so that every suite can read the case tables through `casebook`."""

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Warn of tests that had nothing to compare with: a skip among hundreds of passes is easily missed."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    missed = [reason for reason in skipped if "NO ORACLE" in reason]
    if missed:
        why = missed[0].partition("NO ORACLE: ")[2].rstrip("')")
        terminalreporter.write_line(
            f"WARNING: {len(missed)} tests compared nothing with openai-harmony: {why}", yellow=True
        )
