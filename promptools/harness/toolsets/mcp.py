"""Tools from MCP servers (extra `mcp`): the settings of servers, and a toolset that holds the connections to them.

The client of the `mcp` package is async, and its connections belong to the asyncio task that opened them. The
connections therefore run on an event loop in a separate thread, and the tools are plain functions. A sync agent calls
these functions directly; an async agent calls them in threads, like all plain functions.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import mimetypes
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeGuard, cast

import anyio
from anyio.from_thread import start_blocking_portal

from promptools.errors import PromptoolsError, UsageError, clip, install_command, without_credentials
from promptools.harness.sandbox.processes import shorten
from promptools.harness.toolsets.agent_tool import AgentTool, ToolOutput, Toolset, ToolTimeoutError, image_part
from promptools.types import Tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.from_thread import BlockingPortal
    from mcp import Client
    from mcp import types as mcp_types
    from mcp.types import CallToolResult, ContentBlock


# How each MCP server is reached, and the file format that MCP clients share.


@dataclass(frozen=True, slots=True)
class StdioServer:
    """An MCP server that is started as a process on this machine.

    The process gets a few harmless environment variables, such as `PATH`, and the variables in `env`.
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class HttpServer:
    """An MCP server that is reached at a URL, over the Streamable HTTP transport."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


McpServer: TypeAlias = StdioServer | HttpServer


def read_server(name: str, given: McpServer | Mapping[str, Any]) -> McpServer:
    """Return the settings of a server. A dict must have `command` or `url`, as in the config files of MCP clients."""
    if not name.strip():
        raise UsageError("an MCP server has an empty name")
    if isinstance(given, StdioServer | HttpServer):
        return given
    keys = {"url": {"url", "headers"}, "command": {"command", "args", "env", "cwd"}}
    kind = next((key for key in keys if isinstance(given.get(key), str)), None)
    if kind is None:
        raise UsageError(f"the MCP server {name!r} has neither 'command' nor 'url'")
    settings = {key: value for key, value in given.items() if key != "type"}
    unknown = settings.keys() - keys[kind]
    if unknown:
        raise UsageError(f"the MCP server {name!r} has settings that are not known: {', '.join(sorted(unknown))}")
    for key, value in settings.items():
        if not _fits(key, value):
            raise UsageError(f"the MCP server {name!r}: {key!r} has the wrong type")
    return HttpServer(**settings) if kind == "url" else StdioServer(**settings)


def read_file(path: Path | str) -> dict[str, McpServer]:
    """Return the servers in a JSON file with `mcpServers`; raise `UsageError` if the file is not valid."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the MCP servers of {str(path)!r}: {error}") from error
    servers = data.get("mcpServers") if _is_object(data) else None
    if not _is_object(servers) or not all(map(_is_object, servers.values())):
        raise UsageError(f"{str(path)!r} has no object 'mcpServers' that maps each server's name to its settings")
    return {name: read_server(name, settings) for name, settings in servers.items()}


def _fits(key: str, value: object) -> bool:
    if key in {"env", "headers"}:
        return _is_object(value) and all(isinstance(item, str) for item in value.values())
    if key == "args":
        return isinstance(value, list | tuple) and all(map(_is_string, cast("Sequence[object]", value)))
    return isinstance(value, str) or (key == "cwd" and value is None)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


# Results of MCP tools as a model's tool results: text, and images.


def result_output(result: CallToolResult, folder: Path | None, *, images: bool) -> ToolOutput:
    """Return the text of a tool's result, with its images if `images` is true.

    Structured content is used only if the result has no text, because servers repeat structured content as text. Each
    image or other file is described in the text by its type and size, and is written to `folder`, if one is given.
    """
    shown: list[dict[str, Any]] = []
    parts = list(_parts(result.content, folder, shown))
    has_text = any(block.type in {"text", "resource"} for block in result.content)
    if result.structured_content is not None and not has_text:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return ToolOutput("\n".join(parts) or "[the tool returned nothing]", tuple(shown) if images else ())


def _parts(content: list[ContentBlock], folder: Path | None, shown: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the texts in a result, and a description of each file in it; append the result's images to `shown`."""
    from mcp.types import EmbeddedResource, ResourceLink, TextContent, TextResourceContents

    for block in content:
        if isinstance(block, TextContent):
            yield block.text
        elif isinstance(block, ResourceLink):
            yield f"[resource {block.uri}]" if not block.description else f"[resource {block.uri}: {block.description}]"
        elif not isinstance(block, EmbeddedResource):
            yield _file(block.type, block.data, block.mime_type, folder, shown)
        elif isinstance(block.resource, TextResourceContents):
            yield block.resource.text
        else:
            yield _file("resource", block.resource.blob, block.resource.mime_type or "", folder, shown)


def _file(kind: str, data: str, mime_type: str, folder: Path | None, shown: list[dict[str, Any]]) -> str:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{kind} {mime_type}, which cannot be decoded]"
    if (part := image_part(content, mime_type)) is not None:
        shown.append(part)
    label = f"{kind} {mime_type or 'of unknown type'}, {len(content)} bytes"
    if folder is None:
        return f"[{label}]"
    suffix = mimetypes.guess_extension(mime_type) or ".bin"
    path = folder / f"{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return f"[{label}: {path}]"


# Tool names that every API accepts. MCP servers may give their tools any names.


LONGEST = 64
"""Maximum number of characters that OpenAI's API allows in a tool name."""
_DIGEST = 8
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


def tool_name(server: str, tool: str, taken: Collection[str]) -> str:
    """Return the name `server__tool` with invalid characters replaced.

    If the name is too long or taken, a digest at its end makes it unique.
    """
    full = f"{server}__{tool}"
    name = _OTHER.sub("_", full)
    if len(name) <= LONGEST and name not in taken:
        return name
    digest = hashlib.sha256(full.encode("utf-8", "replace")).hexdigest()[:_DIGEST]
    return f"{name[: LONGEST - _DIGEST - 1]}_{digest}"


# The servers as a set of tools.


MAX_PAGES = 100
"""Maximum number of pages that are read of a server's tool list. MCP servers may split the list into pages."""
MAX_TOOLS = 1000
MAX_DESCRIPTION = 20_000
"""Maximum number of bytes of a tool's description, or of a server's instructions, that a model is shown."""
MAX_OUTPUT = 100_000
"""Maximum number of bytes of a result's text that a model is shown."""
MAX_BODY = 1 << 26
"""Maximum number of bytes of one HTTP response, since a server might never stop sending."""
_SHOWN = 500
_END_SECONDS = 5.0


class McpToolError(PromptoolsError):
    """An MCP tool or its server failed; the message is for the model."""


class McpTimeoutError(McpToolError, ToolTimeoutError):
    """An MCP tool took too long."""


class McpServers:
    """A context manager that connects to MCP servers, and yields their tools as a `Toolset`.

    `servers` maps the names of servers to their settings. The tools are named `name__tool`. `timeout` is the maximum
    number of seconds for a call, and for connecting to a server. Images and other files that tools return are written
    to the folder `files`, if given. Images are shown to the model if it accepts images; with `images=False`, they are
    only described. Raises `McpToolError` if a server cannot be reached.
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
        """Return an instance for the servers in a JSON file with `mcpServers`, the format of MCP clients."""
        return cls(read_file(path), timeout=timeout, files=files, images=images)

    def __enter__(self) -> Toolset:
        try:
            import_module("mcp.client.client")  # this module exists since version 2
        except ImportError as error:
            raise UsageError(f"MCP servers need the extra: {install_command('mcp')}") from error
        try:
            portal = self._stack.enter_context(start_blocking_portal())
            return self._connect(portal, self._stack)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # a broken connection raises its error again when it is closed
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
                instructions.append(shorten(client.instructions, MAX_DESCRIPTION))
        return Toolset(tuple(tools.values()), instructions="\n\n".join(instructions))

    def _tool(self, full: str, server: str, entry: mcp_types.Tool, client: Client, portal: BlockingPortal) -> AgentTool:
        reads_only = entry.annotations is not None and bool(entry.annotations.read_only_hint)
        description = shorten(entry.description or entry.title or "", MAX_DESCRIPTION)
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
            output = ToolOutput(shorten(output.text, MAX_OUTPUT), output.images)
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
    """Return an HTTP client without timeouts, because `_call_tool` limits the time of a call.

    A timeout of the HTTP client would end the connection, and with it all calls in progress. Only the request that ends
    a session has a timeout, because nothing else limits the time of that request.
    """
    import httpx2

    async def limit_time(request: httpx2.Request) -> None:
        if request.method == "DELETE":
            request.extensions["timeout"] = httpx2.Timeout(min(timeout, _END_SECONDS)).as_dict()

    async def limit_size(response: httpx2.Response) -> None:
        response.stream = _Limited(response.stream)

    class _Limited(httpx2.AsyncByteStream):
        """The body of a response, which raises `ReadError` after `MAX_BODY` bytes."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncGenerator[bytes]:
            left = MAX_BODY
            async for piece in self._stream:
                left -= len(piece)
                if left < 0:
                    raise httpx2.ReadError(f"a response has more than {MAX_BODY} bytes")
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    hooks: dict[str, list[Callable[..., Any]]] = {"request": [limit_time], "response": [limit_size]}
    return httpx2.AsyncClient(headers=dict(settings.headers), timeout=None, event_hooks=hooks)


async def _list_tools(client: Client, timeout: float) -> list[mcp_types.Tool]:
    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    with anyio.fail_after(timeout):
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            if len(tools) > MAX_TOOLS:
                raise McpToolError(f"it lists more than {MAX_TOOLS} tools")
            cursor = page.next_cursor
            if not cursor:
                break
    return tools


async def _call_tool(client: Client, name: str, arguments: dict[str, Any], timeout: float) -> mcp_types.CallToolResult:
    """Call a tool and return its result. Raises `TimeoutError` after `timeout` seconds.

    The MCP client's own timeout is off, because if there were two timeouts, the later one would find the connection
    already broken.
    """
    with anyio.fail_after(timeout):
        return await client.call_tool(name, arguments, read_timeout_seconds=inf)


def _is_timeout(error: Exception) -> bool:
    """Return whether a call timed out, either by promptools' own timeout or by that of the MCP client."""
    from mcp.types import REQUEST_TIMEOUT

    return isinstance(error, TimeoutError) or getattr(error, "code", None) == REQUEST_TIMEOUT


def _reason(error: BaseException) -> str:
    """Return the type and text of an error, without passwords in URLs.

    An exception group counts as its first exception.
    """
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    text = without_credentials(str(error).strip())
    return clip(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _tail(log: TextIO) -> str:
    """Return the last lines that the server wrote to its standard error."""
    log.seek(0)
    text = log.read().strip()
    return f"; it wrote: {text[-_SHOWN:]}" if text else ""
