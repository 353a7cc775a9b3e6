"""MCP servers as a set of tools.

The client of the `mcp` package is async, and its connections belong to the task that opened them. They are on an event
loop in a thread of their own, so that the tools are plain functions: a sync agent calls them, and an async one runs
them in threads, as it does with all plain functions.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import anyio
from anyio.from_thread import start_blocking_portal

from promptools.errors import PromptoolsError, UsageError, clip, without_credentials
from promptools.toolsets.agent_tool import AgentTool, Toolset
from promptools.toolsets.mcp.name_mapping import tool_name
from promptools.toolsets.mcp.results import result_output
from promptools.toolsets.mcp.server_settings import HttpServer, McpServer, StdioServer, read_file, read_server
from promptools.toolsets.tool_output import ToolOutput
from promptools.toolsets.tool_timeout import ToolTimeoutError
from promptools.types import Tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.from_thread import BlockingPortal
    from mcp import Client
    from mcp import types as mcp_types

MAX_PAGES = 100
"""Pages of a server's list of tools."""
_SHOWN = 500


class McpToolError(PromptoolsError):
    """An MCP tool failed, or its server; the message is for the model."""


class McpTimeoutError(McpToolError, ToolTimeoutError):
    """An MCP tool took too long."""


class McpServers:
    """Connections to MCP servers; entering it returns their tools as a `Toolset`.

    `servers` are settings by name; the tools are called `name__tool`. A call takes at most `timeout` seconds, and so
    does connecting. Images and other files that tools return are written to `files`, if given. The model is shown the
    images, if it takes any; `images=False` only names them. Raises `McpToolError` if a server cannot be reached.
    """

    def __init__(
        self,
        servers: Mapping[str, McpServer | Mapping[str, Any]],
        *,
        timeout: float = 60.0,
        files: Path | str | None = None,
        images: bool = True,
    ) -> None:
        self._servers = {name: read_server(name, settings) for name, settings in servers.items()}
        self._timeout = timeout
        self._files = None if files is None else Path(files)
        self._images = images
        self._stack = ExitStack()

    @classmethod
    def from_file(
        cls, path: Path | str, *, timeout: float = 60.0, files: Path | str | None = None, images: bool = True
    ) -> McpServers:
        """Return the servers of a JSON file with `mcpServers`, as MCP clients have it."""
        return cls(read_file(path), timeout=timeout, files=files, images=images)

    def __enter__(self) -> Toolset:
        try:
            import_module("mcp.client.client")  # of the second major
        except ImportError as error:
            raise UsageError("MCP servers need the extra: pip install 'promptools-compat[mcp]'") from error
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            toolset = self._connect(portal, stack)
            self._stack = stack.pop_all()
        return toolset

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _connect(self, portal: BlockingPortal, stack: ExitStack) -> Toolset:
        tools: dict[str, AgentTool] = {}
        instructions: list[str] = []
        for name, settings in self._servers.items():
            log = io.TextIOWrapper(tempfile.TemporaryFile(), "utf-8", "replace")  # noqa: SIM115  closed by the stack
            stack.callback(log.close)
            try:
                client = stack.enter_context(
                    portal.wrap_async_context_manager(_connected(settings, self._timeout, log))
                )
                listed = portal.call(_list_tools, client, self._timeout)
            except Exception as error:
                raise McpToolError(f"the MCP server {name!r} cannot be used: {_reason(error)}{_tail(log)}") from error
            for entry in listed:
                full = tool_name(name, entry.name, tools)
                tools[full] = self._tool(full, name, entry, client, portal)
            if client.instructions:
                instructions.append(client.instructions)
        return Toolset(tuple(tools.values()), instructions="\n\n".join(instructions))

    def _tool(self, full: str, server: str, entry: mcp_types.Tool, client: Client, portal: BlockingPortal) -> AgentTool:
        reads_only = entry.annotations is not None and bool(entry.annotations.read_only_hint)
        description = entry.description or entry.title or ""
        tool = Tool(full, description, dict(entry.input_schema), dangerous=not reads_only)
        return AgentTool(tool, self._function(server, entry.name, client, portal), parallel=reads_only)

    def _function(self, server: str, name: str, client: Client, portal: BlockingPortal) -> Callable[..., Any]:
        def run(**arguments: Any) -> str | ToolOutput:
            try:
                result = portal.call(_call_tool, client, name, arguments, self._timeout)
            except Exception as error:
                if _is_timeout(error):
                    message = f"{name!r} did not answer within {self._timeout:g} seconds"
                    raise McpTimeoutError(message, seconds=self._timeout) from None
                raise McpToolError(f"the MCP server {server!r} failed: {_reason(error)}") from error
            output = result_output(result, self._files, images=self._images)
            if result.is_error:
                raise McpToolError(output.text)
            return output if output.images else output.text

        return run


@asynccontextmanager
async def _connected(settings: McpServer, timeout: float, log: TextIO) -> AsyncGenerator[Client]:
    """Connect to a server, and yield the client."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    if isinstance(settings, StdioServer):
        parameters = StdioServerParameters(
            command=settings.command, args=list(settings.args), env=dict(settings.env), cwd=settings.cwd
        )
        client = Client(stdio_client(parameters, errlog=log), read_timeout_seconds=timeout)
        async with client:
            yield client
    else:
        async with _http_client(settings, timeout) as http_client:
            client = Client(streamable_http_client(settings.url, http_client=http_client), read_timeout_seconds=timeout)
            async with client:
                yield client


def _http_client(settings: HttpServer, timeout: float) -> Any:
    import httpx2

    return httpx2.AsyncClient(headers=dict(settings.headers), timeout=httpx2.Timeout(timeout))


async def _list_tools(client: Client, timeout: float) -> list[mcp_types.Tool]:
    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    with anyio.fail_after(timeout):
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
    return tools


async def _call_tool(client: Client, name: str, arguments: dict[str, Any], timeout: float) -> mcp_types.CallToolResult:
    with anyio.fail_after(timeout):
        return await client.call_tool(name, arguments)


def _is_timeout(error: Exception) -> bool:
    """Whether the time was up: for us, or for the client, which also waits that long for a response."""
    from mcp.types import REQUEST_TIMEOUT

    return isinstance(error, TimeoutError) or getattr(error, "code", None) == REQUEST_TIMEOUT


def _reason(error: BaseException) -> str:
    """Return why something failed; task groups wrap it, and a URL in it may hold a password."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    text = without_credentials(str(error).strip())
    return clip(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _tail(log: TextIO) -> str:
    """Return the end of what the server wrote to its standard error."""
    log.seek(0)
    text = log.read().strip()
    return f"; it wrote: {text[-_SHOWN:]}" if text else ""
