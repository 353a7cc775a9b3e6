"""Whether the end of a response has been received: asked of its own socket, which must not wait for it."""

import importlib
import socket
import time
from contextlib import closing
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from promptools.testing.scripted_server import HttpAnswer, ScriptedServer
from promptools.transport import response_content


@pytest.mark.parametrize("waiting", [b"", b"0\r\n\r\n"])
def test_a_socket_that_is_said_to_be_readable_is_not_waited_for(monkeypatch, waiting):
    limits = []

    def recv(own, *arguments):
        limits.append(own.gettimeout())
        if limits[-1]:
            raise BlockingIOError("it would wait")
        return super(socket.socket, own).recv(*arguments)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(waiting)
        ours.settimeout(600)
        monkeypatch.setattr(socket.socket, "recv", recv, raising=False)
        stream = SimpleNamespace(get_extra_info={"socket": ours, "is_readable": True}.get)
        response = SimpleNamespace(extensions={"network_stream": stream})
        assert response_content._unread_socket_data(response) == waiting
        assert limits == [0]
        assert ours.gettimeout() == 600


@pytest.mark.parametrize("family", [name for name in ("httpx", "httpx2") if find_spec(name)])
def test_the_connection_of_a_response_that_was_read_is_left_to_the_next(family):
    with closing(ScriptedServer()) as server, importlib.import_module(family).Client(base_url=server.url) as client:
        server.play(HttpAnswer(pieces=(b"{}",)), HttpAnswer(pieces=(b"{", b"}")))
        with client.stream("POST", "/chat/completions", json={}) as first:
            first.read()
            with client.stream("POST", "/chat/completions", json={}) as second:
                streams = [each.extensions["network_stream"] for each in (first, second)]
                assert streams[0] is streams[1]
                while not response_content.end_received(second):
                    time.sleep(0.01)
                assert not response_content.end_received(first)
                assert second.read() == b"{}"
