"""`promptools agent --acp`: the agent in an editor that speaks the Agent Client Protocol (the extra `acp`).

The editor starts this process and talks to it over stdin and stdout, in JSON-RPC, with the protocol's own SDK. A
session is a folder with its sandbox, its MCP servers and one conversation. The conversation is recorded in a file, the
tape, and each prompt continues it from there. Because of the tape, the conversation can continue after a prompt that
failed or was cancelled, and a later process can load the session.

The editor's own file system and terminals are not used. Files are read and changed in the folder itself. Commands run
in promptools' sandbox, because an editor has no sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shlex
import sys
import tempfile
import threading
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import anyio.to_thread

import promptools
from promptools.cli.agent_setup import agent_toolsets, build_agent, instructions, is_asked, workspace
from promptools.cli.command_client import connect, connect_async, default_model, print_destination
from promptools.cli.server_errors import describe_failure
from promptools.cli.shared_arguments import open_sandbox
from promptools.errors import PromptoolsError, UsageError, install_command
from promptools.harness.agent import (
    Agent,
    CallEvent,
    CompactionEvent,
    Deny,
    ReasoningEvent,
    ResultEvent,
    RetryEvent,
    TextEvent,
    Transcript,
    read_tape,
)
from promptools.harness.agent.harness_errors import IterationLimitError, LimitsExceeded, MaxContextWindowOverflow
from promptools.harness.sandbox.processes import interruptible
from promptools.json_values import is_array, is_object
from promptools.wire.chat_decoder import reasoning_of
from promptools.wire.json_body import split_content

try:
    import acp
    from acp import schema
except ImportError as error:
    raise UsageError(f"--acp needs the extra: {install_command('acp')}") from error

if TYPE_CHECKING:
    from promptools.harness.agent import RunEvent
    from promptools.harness.toolsets import Toolset
    from promptools.types import Call

MAX_MESSAGE = 50 * 2**20
"""Maximum size in bytes of a message from the editor; it is large because a prompt may contain files."""
_SESSION_ID = re.compile(r"[0-9a-f]{32}")


def serve(arguments: argparse.Namespace) -> int:
    """Serve the editor until it closes stdin."""
    others = ("resume", "interactive", "json", "events", "trajectory")
    given = ["the task"] if arguments.task else []
    given += ["--repo"] if arguments.repo != "." else []
    given += [f"--{name}" for name in others if getattr(arguments, name)]
    if given:
        raise UsageError(f"--acp takes folders and tasks from the editor: leave out {', '.join(given)}")
    if arguments.system == "-":
        raise UsageError("--acp talks to the editor over stdin: name a file for --system")
    asyncio.run(_serve(arguments))
    return 0


async def _serve(arguments: argparse.Namespace) -> None:
    reader, writer = await _open_streams()
    async with AsyncExitStack() as stack:
        folder = arguments.tape or stack.enter_context(tempfile.TemporaryDirectory(prefix="promptools-acp-"))
        agent = EditorAgent(arguments, Path(folder))
        stack.push_async_callback(agent.close)
        # the SDK's type requires all methods, but the SDK itself answers calls of methods that this agent lacks
        await acp.run_agent(cast("Any", agent), writer, reader)


async def _open_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of the protocol. From now on, all other output to stdout goes to stderr instead."""
    sys.stdout.flush()
    protocol = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.redirect_stdout(protocol):
        return await acp.stdio.stdio_streams(MAX_MESSAGE)


@dataclass(slots=True)
class EditorSession:
    """A session of the editor: the agent, the file with the conversation (the tape), and the turn in progress."""

    id: str
    root: Path
    tape: Path
    agent: Agent
    opened: ExitStack
    """The exit stack of the sandbox and the MCP servers, which are closed with the session."""
    stop: threading.Event = field(default_factory=threading.Event)
    turn: asyncio.Task[schema.StopReason] | None = None
    question: asyncio.Task[Deny | None] | None = None
    """The task that asks the user to allow a call; None if no question is waiting for an answer."""
    runs_call: bool = False
    allowed: set[str] = field(default_factory=set[str])
    """The names of tools whose calls the user always allows."""
    files: dict[str, dict[Path, str | None]] = field(default_factory=dict[str, dict[Path, str | None]])
    """Maps the id of each call in progress to the files that the call patches, each with its text before the call."""

    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation so far."""
        return read_tape(self.tape).messages if self.tape.exists() else []

    def cancel(self) -> None:
        """End the turn in progress.

        A running command is ended, and its result is kept. If another tool is running, the turn ends after that tool.
        """
        self.stop.set()
        if self.question is not None:
            self.question.cancel()
        if self.turn is not None and not self.runs_call:
            self.turn.cancel()


class EditorAgent:
    """The agent for the protocol's SDK, which calls a method of this class for each message from the editor."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self._sessions: dict[str, EditorSession] = {}
        self._client: Any = None
        self._model: str = arguments.model or ""
        self._editor: Any = None
        self._loading = asyncio.Lock()

    def on_connect(self, editor: acp.Client) -> None:
        """Store the connection to the editor."""
        self._editor = editor

    async def initialize(self, **_: Any) -> schema.InitializeResponse:
        """Return the agent's capabilities and protocol version.

        The agent supports a single version, which is returned whichever version the editor asks for.
        """
        return schema.InitializeResponse(
            protocol_version=acp.PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="promptools", title="promptools", version=promptools.__version__),
            agent_capabilities=schema.AgentCapabilities(
                load_session=bool(self._arguments.tape),
                mcp_capabilities=schema.McpCapabilities(http=True),
                prompt_capabilities=schema.PromptCapabilities(embedded_context=True),
            ),
        )

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> schema.NewSessionResponse:
        """Open a session in a folder."""
        session = await self._open(uuid.uuid4().hex, cwd, mcp_servers or ())
        return schema.NewSessionResponse(session_id=session.id)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> schema.LoadSessionResponse:
        """Load a session from its tape, and show its conversation.

        The tape is a file in the folder that --tape names.
        """
        if not _SESSION_ID.fullmatch(session_id) or not (self._folder / f"{session_id}.jsonl").exists():
            raise acp.RequestError.resource_not_found(session_id)
        async with self._loading:
            if session_id not in self._sessions:
                await self._open(session_id, cwd, mcp_servers or ())
        session = self._sessions[session_id]
        with _protocol_errors():
            messages = session.messages()
        for update in _conversation(session, messages):
            await self._editor.session_update(session_id, update)
        return schema.LoadSessionResponse()

    async def prompt(self, prompt: Sequence[Any], session_id: str, **_: Any) -> schema.PromptResponse:
        """Work on a prompt until the model answers, a limit is reached, or the turn is cancelled."""
        session = self._find(session_id)
        if session.turn is not None:
            raise acp.RequestError(-32600, "the session works on another prompt")
        session.stop = threading.Event()
        session.runs_call = False  # still true if the last turn was cancelled before the result of its call
        session.files.clear()
        session.turn = asyncio.create_task(self._work(session, prompt_text(prompt)))
        try:
            return schema.PromptResponse(stop_reason=await session.turn)
        except asyncio.CancelledError:
            if not session.stop.is_set():  # the editor is gone
                raise
            return schema.PromptResponse(stop_reason="cancelled")
        finally:
            session.turn = None

    async def cancel(self, session_id: str, **_: Any) -> None:
        """End the turn of a session."""
        self._find(session_id).cancel()

    async def close(self) -> None:
        """Close all sessions, and the connection to the server."""
        async with AsyncExitStack() as stack:  # if one cannot be closed, the others still are
            if self._client is not None:
                stack.push_async_callback(self._client.close)
            for session in self._sessions.values():
                session.cancel()
                stack.push_async_callback(anyio.to_thread.run_sync, session.opened.close)

    # --- sessions

    def _find(self, session_id: str) -> EditorSession:
        if session_id not in self._sessions:
            raise acp.RequestError.resource_not_found(session_id)
        return self._sessions[session_id]

    async def _open(self, session_id: str, cwd: str, servers: Sequence[Any]) -> EditorSession:
        loop = asyncio.get_running_loop()
        with _protocol_errors():
            if not Path(cwd).is_absolute():
                raise UsageError(f"the folder {cwd!r} is not an absolute path")
            if self._client is None:
                self._client = connect_async(self._arguments)
                print_destination(self._arguments, self._client)
            session = await anyio.to_thread.run_sync(self._build, session_id, cwd, servers, loop)
        self._sessions[session_id] = session
        return session

    def _build(
        self, session_id: str, cwd: str, servers: Sequence[Any], loop: asyncio.AbstractEventLoop
    ) -> EditorSession:
        """Return a new session with its agent. This takes too long for the event loop, so it must run in a thread."""
        arguments = self._arguments
        root = workspace(cwd)
        if not self._model:
            with connect(arguments) as client:
                self._model = default_model(client)
        with ExitStack() as stack:
            sandbox = open_sandbox(arguments, root)
            stack.callback(sandbox.close)
            others = _mcp_tools(stack, arguments.mcp, servers)
            tools = agent_toolsets(arguments, root, sandbox, others)

            def approve(call: Call) -> Deny | None:  # in the thread of the call
                needs_answer = call.name in asked and not arguments.yes
                return asyncio.run_coroutine_threadsafe(self._approve(session, call, ask=needs_answer), loop).result()

            told = instructions(arguments, root)
            agent = build_agent(arguments, self._client, tools, model=self._model, instructions=told, approve=approve)
            own_names = agent.toolbox.own_names
            asked = {tool.name for tool in agent.toolbox.tools if is_asked(own_names[tool.name], tool)}
            tape = self._folder / f"{session_id}.jsonl"
            session = EditorSession(session_id, root, tape, agent, stack.pop_all())
        return session

    # --- a turn

    async def _work(self, session: EditorSession, text: str) -> schema.StopReason:
        with _protocol_errors(), interruptible(session.stop):
            task = [*session.messages(), {"role": "user", "content": text}]
            run: Any = session.agent.astream(task, tape=session.tape)
            try:
                async with aclosing(run) as events:
                    async for event in events:
                        await self._show(session, event)
                        if session.stop.is_set():
                            return "cancelled"
                        if isinstance(event, Transcript):
                            return _stop_reason(event)
            except IterationLimitError:
                return "max_turn_requests"
            except LimitsExceeded as error:
                return "max_tokens" if error.limit == "tokens" else "max_turn_requests"
            except MaxContextWindowOverflow:
                return "max_tokens"
        raise AssertionError("a run ends with its transcript")

    async def _show(self, session: EditorSession, event: RunEvent) -> None:
        """Send an event to the editor."""
        match event:
            case TextEvent(text):
                update: Any = acp.update_agent_message_text(text)
            case ReasoningEvent(text):
                update = acp.update_agent_thought_text(text)
            case CallEvent(call):
                session.runs_call = True
                files = _patched_files(session.root, call.arguments)
                session.files[call.id] = {file: _read(file) for file in files}
                update = _call_update(session, call, files)
            case ResultEvent(result):
                session.runs_call = False
                diffs = _differences(session.files.pop(result.call_id, {}))
                update = _result_update(result.call_id, result.content, diffs, failed=result.is_error)
            case RetryEvent(_, error, message):
                note = f"\n[The reply cannot be used, and another one is requested: {error}: {message}]\n"
                update = acp.update_agent_thought_text(note)
            case CompactionEvent(stage, before, after):
                note = f"\n[The conversation was made shorter ({stage}): {before} to {after} characters.]\n"
                update = acp.update_agent_thought_text(note)
            case _:
                return
        await self._editor.session_update(session.id, update)

    async def _approve(self, session: EditorSession, call: Call, *, ask: bool) -> Deny | None:
        """Return None if a call may run, else the denial of the call. The user is asked only if `ask` is true."""
        if session.stop.is_set():
            return Deny("the user has cancelled the run")
        if ask and call.name not in session.allowed:
            session.question = asyncio.create_task(self._ask(session, call))
            try:
                denied = await session.question
            except asyncio.CancelledError:
                return Deny("the user has cancelled the run")
            finally:
                session.question = None
            if denied is not None:
                return denied
        await self._editor.session_update(session.id, acp.update_tool_call(call.id, status="in_progress"))
        return None

    async def _ask(self, session: EditorSession, call: Call) -> Deny | None:
        update = schema.ToolCallUpdate(tool_call_id=call.id, title=_title(call), raw_input=call.arguments)
        options = [
            schema.PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
            schema.PermissionOption(option_id="always", name=f"Always allow {call.name}", kind="allow_always"),
            schema.PermissionOption(option_id="deny", name="Deny", kind="reject_once"),
        ]
        answer = await self._editor.request_permission(session.id, update, options)
        chosen = answer.outcome.option_id if answer.outcome.outcome == "selected" else "deny"
        if chosen == "always":
            session.allowed.add(call.name)
        return None if chosen in {"allow", "always"} else Deny()


@contextlib.contextmanager
def _protocol_errors() -> Generator[None]:
    """Convert the errors that promptools or the openai package raises in the block to protocol errors.

    The messages are the same as on the command line.
    """
    import openai

    try:
        yield
    except UsageError as error:
        raise acp.RequestError(-32602, str(error)) from error
    except (PromptoolsError, openai.OpenAIError) as error:
        raise acp.RequestError(-32603, str(describe_failure(error) or error)) from error


def _stop_reason(done: Transcript) -> schema.StopReason:
    match done.finish_reason:
        case "length":
            return "max_tokens"
        case "content_filter":
            return "refusal"
        case _:
            return "end_turn"


# What the editor sends: prompts, and MCP servers.


def prompt_text(blocks: Sequence[Any]) -> str:
    """Return a prompt as text, including the files that the editor embeds and the names of the files that it links."""
    return "\n".join(_block_text(block) for block in blocks)


def _block_text(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "resource_link":
            return f"[{block.name}]({_shown_uri(block.uri)})"
        case "resource" if isinstance(block.resource, schema.TextResourceContents):
            return f"{_shown_uri(block.resource.uri)}:\n```\n{block.resource.text}\n```"
        case kind:
            raise acp.RequestError(-32602, f"the prompt has a block of type {kind!r} that this agent cannot read")


def _shown_uri(uri: str) -> str:
    return unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri


def _mcp_tools(stack: ExitStack, file: str | None, given: Sequence[Any]) -> list[Toolset]:
    """Connect to the MCP servers in the file of `--mcp` and to those that the editor gave; return their tools.

    The connections stay open until `stack` is closed with the session.
    """
    if not file and not given:
        return []
    from promptools.harness.toolsets.mcp import McpServers, read_file

    servers = {**(read_file(file) if file else {}), **{server.name: _mcp_settings(server) for server in given}}
    return [stack.enter_context(McpServers(servers))]


def _mcp_settings(server: Any) -> Mapping[str, Any]:
    if isinstance(server, schema.McpServerStdio):
        env = {variable.name: variable.value for variable in server.env}
        return {"command": server.command, "args": server.args, "env": env}
    if isinstance(server, schema.HttpMcpServer):
        return {"url": server.url, "headers": {header.name: header.value for header in server.headers}}
    raise UsageError(f"the MCP server {server.name!r} is reached by {server.type!r}; stdio and http are supported")


# Calls as the editor shows them: a title, a kind, the files that are patched, and what changed in them.


KINDS: Mapping[str, schema.ToolKind] = {
    "container.exec": "execute",
    "python": "execute",
    "repo_browser.apply_patch": "edit",
    "repo_browser.open_file": "read",
    "repo_browser.print_tree": "read",
    "repo_browser.search": "search",
    "browser.search": "search",
    "browser.open": "fetch",
    "browser.find": "search",
}
MAX_TITLE = 200
MAX_SHOWN = 1 << 20
"""Maximum size in bytes of a file whose changes are shown."""
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)


def _title(call: Call) -> str:
    command = call.arguments.get("command")
    if call.name == "container.exec" and is_array(command):
        text = shlex.join(map(str, command))
    else:
        text = f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}"
    return text if len(text) <= MAX_TITLE else f"{text[:MAX_TITLE]}..."


def _call_update(session: EditorSession, call: Call, files: Sequence[Path]) -> schema.ToolCallStart:
    own_name = session.agent.toolbox.own_names.get(call.name, call.name)
    return acp.start_tool_call(
        call.id,
        _title(call),
        kind=KINDS.get(own_name, "other"),
        status="pending",
        locations=[schema.ToolCallLocation(path=str(file)) for file in files],
        raw_input=call.arguments,
    )


def _result_update(call_id: str, text: str, diffs: Sequence[Any] = (), *, failed: bool) -> schema.ToolCallProgress:
    content = [acp.tool_content(acp.text_block(text)), *diffs]
    return acp.update_tool_call(call_id, status="failed" if failed else "completed", content=content)


def _patched_files(root: Path, arguments: Mapping[str, Any]) -> list[Path]:
    """Return the files that patches in the arguments name, if they are inside the folder."""
    files: set[Path] = set()
    for name in (match[1].strip() for text in _strings(arguments) for match in _PATCHED.finditer(text)):
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # NUL, half a surrogate, a loop of links
            files.add((root / name).resolve())
    return [file for file in sorted(files) if file.is_relative_to(root)]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_object(value) or is_array(value):
        for item in value.values() if is_object(value) else value:
            yield from _strings(item)


def _read(file: Path) -> str | None:
    """Return the text of a file; None if the file does not exist, or cannot be shown."""
    try:
        return file.read_text(encoding="utf-8") if file.stat().st_size <= MAX_SHOWN else None
    except (OSError, ValueError):
        return None


def _differences(before: Mapping[Path, str | None]) -> list[schema.FileEditToolCallContent]:
    now = {file: _read(file) for file in before}
    return [acp.tool_diff_content(str(file), now[file] or "", old) for file, old in before.items() if now[file] != old]


def _conversation(session: EditorSession, messages: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """Yield the updates that show a past conversation in the editor.

    The toolbox prepares each call again, so that the call looks the same as when the model made it.
    """
    for message in messages:
        text = split_content(message.get("content"))[0]
        match message.get("role"):
            case "user":
                yield acp.update_user_message_text(text)
            case "tool":
                failed = text.startswith("Error: ")
                yield _result_update(str(message["tool_call_id"]), text, failed=failed)
            case "assistant":
                if thought := reasoning_of(message):
                    yield acp.update_agent_thought_text(thought)
                if text:
                    yield acp.update_agent_message_text(text)
                for sent in message.get("tool_calls") or ():
                    function = sent["function"]
                    call = session.agent.toolbox.prepare_call(sent["id"], function["name"], function["arguments"]).call
                    yield _call_update(session, call, _patched_files(session.root, call.arguments))
            case _:
                pass
