"""The scripted server of `promptools.testing`, under the names of these tests, and few certificates for its clients."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import certifi
import pytest

from promptools.testing.scripted_server import HttpAnswer as Answer
from promptools.testing.scripted_server import ScriptedServer, chunk, completion
from promptools.testing.scripted_server import json_answer as unary
from promptools.testing.scripted_server import sse_answer as sse

__all__ = ["Answer", "Upstream", "chunk", "completion", "few_certificates", "running", "sse", "unary"]


class Upstream(ScriptedServer):
    """The server; `seen` are its requests, `looks` those of the detection."""

    @property
    def seen(self):
        return self.requests

    @property
    def looks(self):
        return self.probes


@cache
def one_certificate():
    """Write one certificate into a file, for all tests of this process."""
    bundle = Path(certifi.where()).read_text(encoding="utf-8")
    start, end = bundle.index("-----BEGIN"), bundle.index("-----END CERTIFICATE-----")
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    path = Path(folder) / "one.pem"
    path.write_text(bundle[start:end] + "-----END CERTIFICATE-----\n", encoding="utf-8")
    return str(path)


@contextmanager
def few_certificates():
    """Let HTTP clients load one certificate instead of all: what they load takes most of the time to make one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", one_certificate())
        yield


@contextmanager
def running():
    server = Upstream()
    try:
        with few_certificates():
            yield server
    finally:
        server.close()
