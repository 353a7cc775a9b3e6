"""The pytest plugin: fixtures for testing apps. It imports almost nothing, since pytest loads it at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptools.testing.scripted_server import ScriptedServer


@pytest.fixture
def scripted_server() -> Iterator[ScriptedServer]:
    """Run a server that answers Chat Completions with scripted replies; its base URL is `scripted_server.url`."""
    from promptools.testing.scripted_server import ScriptedServer

    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def reply_snapshot(request: pytest.FixtureRequest) -> Any:
    """Compare with a snapshot: `assert reply == reply_snapshot`; needs syrupy, which the extra `testing` installs."""
    if not request.config.pluginmanager.has_plugin("syrupy"):
        from promptools.errors import install_command

        pytest.fail(f"reply_snapshot needs syrupy: {install_command('testing')}", pytrace=False)
    from promptools.testing.snapshots import ReplySnapshotExtension

    return request.getfixturevalue("snapshot").use_extension(ReplySnapshotExtension)
