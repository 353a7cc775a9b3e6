"""Tools of real MCP servers, made with the `mcp` package: over pipes, and over HTTP."""

import base64
import json
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import uvicorn

from promptools.errors import UsageError
from promptools.harness.agent.toolbox import Toolbox
from promptools.harness.toolsets import mcp
from promptools.harness.toolsets.agent_tool import image_part
from promptools.harness.toolsets.mcp import (
    HttpServer,
    McpServers,
    McpTimeoutError,
    McpToolError,
    StdioServer,
    tool_name,
)

SERVER = Path(__file__).with_name("mcp_test_server.py")
HERE = StdioServer(sys.executable, [str(SERVER)])
PICTURE = b"\x89PNG picture"
PICTURE_BASE64 = base64.b64encode(PICTURE).decode()


@pytest.fixture(scope="module")
def over_pipes():
    with McpServers({"test server": HERE}, timeout=300) as toolset:
        yield toolset


@pytest.fixture(scope="module")
def address():
    """A server over HTTP that wants a header."""
    from mcp_test_server import make_server

    app = make_server().streamable_http_app()

    async def guarded(scope, receive, send):
        if scope["type"] == "http" and (b"authorization", b"Bearer the-key") not in scope["headers"]:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
        else:
            await app(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(guarded, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def over_http(address):
    with McpServers({"test server": HttpServer(address, {"Authorization": "Bearer the-key"})}, timeout=300) as toolset:
        yield toolset


@pytest.fixture(params=["over_pipes", pytest.param("over_http", marks=pytest.mark.exhaustive)])
def toolset(request):
    return request.getfixturevalue(request.param)


def call(toolset, name, **arguments):
    prepared = Toolbox([toolset]).prepare_call("1", name, json.dumps(arguments))
    assert prepared.work is not None, prepared.result
    return prepared.work()


def test_tools_are_described(toolset):
    tools = {entry.tool.name: entry for entry in toolset.tools}
    assert {"test_server__add", "test_server__look", "test_server__odd_name_"} <= set(tools)
    add = tools["test_server__add"].tool
    assert add.description == "Add two numbers."
    assert add.parameters["properties"]["a"]["type"] == "integer"
    assert (tools["test_server__look"].parallel, tools["test_server__look"].tool.dangerous) == (True, False)
    assert (tools["test_server__add"].parallel, add.dangerous) == (False, True)
    assert toolset.instructions == "What the server wants to say."


def test_a_call_and_its_result(toolset):
    assert call(toolset, "test_server__add", a=2, b=3) == "5"
    assert call(toolset, "test_server__odd_name_") == "odd"
    assert call(toolset, "test_server__look", where="here") == "looked here"


def test_structured_results_are_json_once(toolset):
    assert json.loads(call(toolset, "test_server__weather")) == {"city": "Oslo", "degrees": -3}
    assert json.loads(call(toolset, "test_server__only_structured")) == {"a": [1, "é"]}


def test_a_tool_that_fails_is_an_error_for_the_model(toolset):
    with pytest.raises(McpToolError, match="it broke"):
        call(toolset, "test_server__fail")


def test_files_are_named(toolset):
    output = call(toolset, "test_server__files")
    text = output.text
    assert [part["image_url"]["url"] for part in output.images] == [f"data:image/png;base64,{PICTURE_BASE64}"]
    assert str(output) == text
    assert text.split("\n")[:3] == ["before", f"[image image/png, {len(PICTURE)} bytes]", "the text of a resource"]
    assert "[resource file:///x.txt: a link]" in text
    assert "cannot be decoded" in text


@pytest.mark.exhaustive
def test_files_are_written_where_that_is_wanted(tmp_path):
    with McpServers({"s": HERE}, timeout=300, files=tmp_path / "files") as toolset:
        text = call(toolset, "s__files").text
    (line,) = [line for line in text.split("\n") if "bytes: " in line]
    path = Path(line.rpartition(": ")[2].rstrip("]"))
    assert path.read_bytes() == PICTURE
    assert path.parent == tmp_path / "files"
    assert path.suffix == ".png"


@pytest.mark.exhaustive
def test_images_are_only_named_where_that_is_wanted():
    with McpServers({"s": HERE}, timeout=300, images=False) as toolset:
        assert f"[image image/png, {len(PICTURE)} bytes]" in call(toolset, "s__files").split("\n")


@pytest.mark.parametrize(
    ("kind", "size", "shown"),
    [("image/png", 8 << 20, True), ("image/png", (8 << 20) + 1, False), ("image/tiff", 9, False)],
)
def test_images_that_are_shown(kind, size, shown):
    assert (image_part(b"x" * size, kind) is not None) is shown


def test_nothing_at_all_is_said_too(toolset):
    assert call(toolset, "test_server__nothing") == "[the tool returned nothing]"


@pytest.mark.exhaustive
def test_a_call_that_takes_too_long_is_ended_and_the_server_stays():
    servers = McpServers({"s": HERE}, timeout=300)
    with servers as toolset:
        (slow,) = [entry for entry in toolset.tools if entry.tool.name == "s__slow"]
        servers._timeout = 0.5  # not before: a busy machine takes longer to start it
        with pytest.raises(McpTimeoutError, match=r"'slow' did not answer within 0\.5 seconds") as caught:
            slow.run()
        servers._timeout = 300
        assert isinstance(caught.value, McpToolError)
        assert caught.value.seconds == 0.5
        assert call(toolset, "s__add", a=1, b=1) == "2"


@pytest.mark.exhaustive
def test_over_http_a_slow_tool_is_an_error_and_the_server_stays_each_time(address):
    servers = McpServers({"s": HttpServer(address, {"Authorization": "Bearer the-key"})}, timeout=300)
    with servers as toolset:
        (slow,) = [entry for entry in toolset.tools if entry.tool.name == "s__wait"]
        for _ in range(3):
            servers._timeout = 0.3
            with pytest.raises(McpTimeoutError, match="did not answer within"):
                slow.run()
            servers._timeout = 300
            assert call(toolset, "s__add", a=1, b=1) == "2"


@pytest.fixture
def hostile():
    """A server over HTTP that lists a tool twice, with an odd schema, and whose tools send without end."""

    def answer(number, result):
        return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            match asked.get("method"):
                case "initialize":
                    info = {"name": "h", "version": "1"}
                    version = asked["params"]["protocolVersion"]
                    body = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
                case "tools/list":
                    odd = {"type": "object", "properties": {"a": {"type": "none", "$ref": "#/a"}}, "required": ["b"]}
                    odd = {"type": "object", "properties": 5} if self.path == "/broken" else odd
                    tool = {"name": "t/1", "description": "d" * 1_000_000, "inputSchema": odd}
                    body = {"tools": [tool, tool, {**tool, "name": "t.1"}, {**tool, "name": "flood"}]}
                case "tools/call" if asked["params"]["name"] == "flood":
                    self.send_response(200)
                    self.send_header("content-type", "application/json")
                    self.end_headers()
                    with suppress(OSError):
                        while True:
                            self.wfile.write(b"[" * 65536)
                    return None
                case "tools/call":
                    body = {"content": [{"type": "text", "text": "y" * 1_000_000}]}
                case _ if "id" in asked:
                    error = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}
                    return self.reply(json.dumps(error).encode())
                case _:
                    return self.reply(b"", 202)
            return self.reply(answer(asked["id"], body))

        def do_GET(self):
            self.reply(b"", 405)

        do_DELETE = do_GET

        def reply(self, body, status=200):
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()
        thread.join()


@pytest.mark.exhaustive
def test_a_hostile_server_harms_nothing(hostile, monkeypatch):
    monkeypatch.setattr(mcp, "MAX_BODY", 4 << 20)
    with McpServers({"h": HttpServer(hostile)}, timeout=60) as toolset:
        names = [entry.tool.name for entry in toolset.tools]
        assert len(names) == len(set(names))
        assert "h__t_1" in names
        assert all(len(entry.tool.description) < 21_000 for entry in toolset.tools)
        assert len(call(toolset, "h__t_1", b=1)) < 101_000
        with pytest.raises(McpToolError, match="the MCP server 'h' failed"):
            call(toolset, "h__flood", b=1)
    broken = HttpServer(hostile.replace("/mcp", "/broken"))
    with pytest.raises(McpToolError, match="the MCP server 'h' cannot be used"):
        McpServers({"h": broken}, timeout=60).__enter__()


@pytest.mark.exhaustive
def test_a_server_that_dies_is_an_error_and_not_a_hang():
    with McpServers({"s": HERE}, timeout=300) as toolset:
        for name in ("s__die", "s__add"):
            with pytest.raises(McpToolError, match="the MCP server 's' failed"):  # which is not that the time is up
                call(toolset, name, **({"a": 1, "b": 1} if name == "s__add" else {}))


@pytest.mark.exhaustive
def test_a_server_that_does_not_start_says_why():
    broken = StdioServer(sys.executable, ["-c", "import sys; sys.exit('no license')"])
    with pytest.raises(McpToolError, match=r"'s' cannot be used.*no license") as caught:
        McpServers({"s": broken}, timeout=300).__enter__()
    assert len(str(caught.value)) < 1000
    with pytest.raises(McpToolError, match="cannot be used"):
        McpServers({"s": StdioServer("no-such-program")}, timeout=300).__enter__()


@pytest.mark.exhaustive
def test_a_server_that_never_answers_is_given_up():
    with pytest.raises(McpToolError, match="cannot be used"):
        McpServers({"s": StdioServer("sleep", ["3600"])}, timeout=1).__enter__()


@pytest.mark.exhaustive
def test_a_server_that_refuses_is_told_without_the_secret(address):
    settings = HttpServer(address.replace("//", "//user:secret@"), {"Authorization": "Bearer another"})
    with pytest.raises(McpToolError, match="cannot be used") as caught:
        McpServers({"s": settings}, timeout=300).__enter__()
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(settings)
    assert "another" not in repr(settings)


@pytest.mark.exhaustive
def test_several_servers(address):
    both = {"a": HERE, "b": HttpServer(address, {"Authorization": "Bearer the-key"})}
    with McpServers(both, timeout=300) as toolset:
        assert call(toolset, "a__add", a=1, b=1) == call(toolset, "b__add", a=1, b=1) == "2"


@pytest.mark.exhaustive
def test_threads_call_at_the_same_time(over_pipes):
    results = []
    threads = [
        threading.Thread(
            target=lambda number=number: results.append(call(over_pipes, "test_server__add", a=number, b=0))
        )
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [str(number) for number in range(8)]


@pytest.mark.exhaustive
def test_the_file_of_mcp_clients(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text(
        json.dumps({"mcpServers": {"s": {"type": "stdio", "command": sys.executable, "args": [str(SERVER)]}}})
    )
    with McpServers.from_file(path, timeout=300) as toolset:
        assert call(toolset, "s__add", a=1, b=1) == "2"


@pytest.mark.parametrize(
    ("servers", "error"),
    [
        ({"s": {}}, "neither 'command' nor 'url'"),
        ({"s": {"command": "x", "headers": {}}}, "not known: headers"),
        ({"s": {"command": "x", "args": "y"}}, "'args' has the wrong type"),
        ({"s": {"url": "http://x", "headers": {"a": 1}}}, "'headers' has the wrong type"),
        ({" ": {"command": "x"}}, "empty name"),
    ],
)
def test_mistakes_in_settings_are_told(servers, error):
    with pytest.raises(UsageError, match=error):
        McpServers(servers)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"mcpServers": {"s": 5}}'])
def test_mistakes_in_files_are_told(tmp_path, text):
    (tmp_path / "mcp.json").write_text(text)
    with pytest.raises(UsageError, match=r"mcp\.json"):
        McpServers.from_file(tmp_path / "mcp.json")


def test_names_are_valid_and_unique():
    assert tool_name("files", "read", ()) == "files__read"
    assert tool_name("my files", "a.b/c", ()) == "my_files__a_b_c"
    first = tool_name("s", "a.b", ())
    second = tool_name("s", "a/b", (first,))
    assert first != second
    long = {tool_name("s", "x" * 100 + end, ()) for end in "ab"}
    assert len(long) == 2
    assert all(len(name) == 64 for name in long)


def test_the_picture_of_the_server_is_ours():
    from mcp_test_server import PICTURE_DATA

    assert base64.b64decode(PICTURE_DATA) == PICTURE
