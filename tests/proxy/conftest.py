"""Puts this folder on the import path, for `serving`; a clock that stands still."""

from types import SimpleNamespace

import pytest


@pytest.fixture
def still(monkeypatch):
    """Let no time pass for rates: a busy machine may take the half minute in which one more request is allowed."""
    from promptools.proxy import admission

    monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=lambda: 1000.0))
