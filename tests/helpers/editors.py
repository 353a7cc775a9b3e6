"""An editor for tests of `promptools agent --acp`: a client of the protocol's SDK, and a real process of the agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

import acp
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse


def blocks(text):
    return [acp.text_block(text)]


class Editor:
    """A client of the SDK that keeps what it is told, and answers questions as it is told to."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked, self.updates, self.options = [], [], []

    async def session_update(self, session_id, update, **_):
        self.updates.append((session_id, update))

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append(tool_call.title)
        self.options = [(option.option_id, option.kind) for option in options]
        answer = self.answers.pop(0)
        if isinstance(answer, asyncio.Event | asyncio.Barrier):  # the user waits for it
            await answer.wait()
            answer = "allow"
        outcome = DeniedOutcome(outcome="cancelled") if answer == "cancelled" else None
        return RequestPermissionResponse(outcome=outcome or AllowedOutcome(outcome="selected", option_id=answer))

    def on_connect(self, connection):
        pass

    def said(self, session_id=None):
        """What was said: kinds with their text, or the title and status of a call."""
        return [_said(update) for own, update in self.updates if session_id in (None, own)]


def _said(update):
    kind = update.session_update
    if kind == "tool_call":
        return kind, update.title, update.kind, update.status
    if kind == "tool_call_update":
        return kind, update.status, [_content(part) for part in update.content or ()]
    return kind, update.content.text


def _content(part):
    return part.content.text if part.type == "content" else (part.path, part.old_text, part.new_text)


@contextlib.asynccontextmanager
async def agent(url, editor, *words, **env):
    """Start the agent on a server; yield the connection once it has said what it can do."""
    program = [sys.executable, "-m", "promptools", "agent", "--acp", "--base-url", url, "--sandbox", "local", *words]
    async with acp.spawn_agent_process(editor, *program, env={**os.environ, **env}) as (connection, _):
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        yield connection
