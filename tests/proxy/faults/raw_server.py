"""An upstream of raw sockets: it does to every request what a fault says, byte by byte."""

from __future__ import annotations

import json
import socket
import struct
import threading

RESET = struct.pack("ii", 1, 0)


class RawServer:
    """Accepts connections; `fault(connection, request)` answers each request, and then the connection is closed."""

    def __init__(self):
        self.fault = None
        self.heads = []
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        threading.Thread(target=self._listen, daemon=True).start()

    def play(self, fault):
        self.fault = fault
        self.heads.clear()

    def close(self):
        self.sock.close()

    def _listen(self):
        while True:
            try:
                connection, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            connection.settimeout(300)
            try:
                request = self._read(connection)
                if request is not None:
                    self.fault(connection, request)
            except OSError:
                pass

    def _read(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return None
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        self.heads.append(head)
        lengths = [
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        parts, size = [body], len(body)
        while size < sum(lengths):
            parts.append(connection.recv(1 << 20))
            size += len(parts[-1])
        body = b"".join(parts)
        return json.loads(body) if body else {}


def head(kind="application/json", *fields, status="200 OK", length=None, chunked=False):
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *fields]
    lines += [f"Content-Length: {length}"] if length is not None else []
    lines += ["Transfer-Encoding: chunked"] if chunked else []
    return "\r\n".join([*lines, "", ""]).encode()


def in_chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def reset(connection):
    """Close with a reset, as a process that is killed does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def stall(connection):
    """Send nothing more until the other side closes."""
    while connection.recv(65536):
        pass
