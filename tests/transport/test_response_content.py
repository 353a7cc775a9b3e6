"""Whether the end of a response has been received: asked of the socket, which must not wait for it."""

import socket
from types import SimpleNamespace

import pytest

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
