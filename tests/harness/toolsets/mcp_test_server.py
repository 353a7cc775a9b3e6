"""An MCP server with all kinds of tools, for tests; run as a program it speaks over its pipes."""

import base64
import os
import time

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

PICTURE_DATA = base64.b64encode(b"\x89PNG picture").decode()


class Weather(BaseModel):
    city: str
    degrees: int


def make_server():
    server = MCPServer("test", instructions="What the server wants to say.", log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def look(where: str) -> str:
        """Look somewhere."""
        return f"looked {where}"

    @server.tool(name="odd.name/")
    def odd() -> str:
        return "odd"

    @server.tool()
    def weather() -> Weather:
        return Weather(city="Oslo", degrees=-3)

    @server.tool()
    def only_structured() -> CallToolResult:
        return CallToolResult(content=[], structured_content={"a": [1, "é"]})

    @server.tool()
    def fail() -> str:
        raise ToolError("it broke")

    @server.tool()
    def nothing() -> CallToolResult:
        return CallToolResult(content=[])

    @server.tool()
    def files() -> CallToolResult:
        resource = TextResourceContents(uri="file:///r.txt", text="the text of a resource")
        return CallToolResult(
            content=[
                TextContent(type="text", text="before"),
                ImageContent(type="image", data=PICTURE_DATA, mime_type="image/png"),
                EmbeddedResource(type="resource", resource=resource),
                ResourceLink(type="resource_link", name="x", uri="file:///x.txt", description="a link"),
                ImageContent(type="image", data="no base64!", mime_type="image/png"),
            ]
        )

    @server.tool()
    def slow() -> str:
        time.sleep(3600)
        return "late"

    @server.tool()
    async def wait() -> str:
        await anyio.sleep(3600)
        return "late"

    @server.tool()
    def die() -> str:
        os._exit(1)

    return server


if __name__ == "__main__":
    make_server().run()
