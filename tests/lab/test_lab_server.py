import os
import re
import sys
import time

import pytest

from promptools.errors import UpstreamError, UsageError, install_command
from promptools.lab import llamacpp_server
from promptools.lab.script import ScriptedReply
from promptools.lab.server_process import cache_folder, start_server

SERVER = """
import sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/up" else 404)
        self.end_headers()
server = HTTPServer(("127.0.0.1", 0), Answer)
print(f"at http://127.0.0.1:{server.server_port}", flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
"""


def address(printed):
    return printed.split()[1] if "at http" in printed else None


def run(folder, code, **options):
    options = {"health": "/up", "seconds": 20, **options}
    return start_server("mine", [sys.executable, "-c", code], folder, address, **options)


def test_a_server_is_waited_for_and_stopped(tmp_path):
    with run(tmp_path, SERVER) as server:
        assert server.base_url == f"{server.url}/v1"
        assert server.process.poll() is None
        assert server.url in server.log.read_text()
    assert server.process.returncode == 0
    server.stop()


def test_one_that_ends_at_once_shows_its_log(tmp_path):
    with pytest.raises(UpstreamError, match=r"(?s)status 3 .*no such model"):
        run(tmp_path, "import sys; print('no such model'); sys.exit(3)")


def test_one_that_never_gets_healthy_is_ended(tmp_path):
    with pytest.raises(UpstreamError, match="did not come up in 1 seconds"):
        run(tmp_path, SERVER, health="/down", seconds=1)


def test_one_that_does_not_stop_is_killed(tmp_path, monkeypatch):
    server = run(tmp_path, f"{SERVER}\nimport time; time.sleep(100)")
    patience = server.process.wait
    monkeypatch.setattr(server.process, "wait", lambda timeout=None: patience(timeout and 0.1))
    server.stop()
    assert server.process.returncode == -9


def test_old_logs_are_dropped(tmp_path):
    old, young = tmp_path / "old.log", tmp_path / "young.log"
    for path in (old, young):
        path.write_text("")
    week = time.time() - 8 * 24 * 3600
    os.utime(old, (week, week))
    run(tmp_path, SERVER).stop()
    assert not old.exists()
    assert young.exists()


def test_the_cache_folder_is_told_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PROMPTOOLS_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("PROMPTOOLS_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "promptools"


def test_without_xllamacpp_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(llamacpp_server, "can_serve", lambda: False)
    with pytest.raises(UsageError, match=re.escape(install_command("demo"))):
        llamacpp_server.serve([ScriptedReply("a", "bc")], folder=tmp_path)


def test_a_model_that_is_not_there_or_no_gguf_is_told(tmp_path):
    with pytest.raises(UsageError, match=r"no\.gguf': No such file or directory; pass a GGUF file"):
        llamacpp_server.serve_file(tmp_path / "no.gguf")
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04")
    with pytest.raises(UsageError, match=r"other\.gguf' is not a GGUF file: it begins with b'PK.*convert the model"):
        llamacpp_server.serve_file(other)


def test_without_xllamacpp_a_file_cannot_be_served_either(monkeypatch, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=re.escape(f"needs xllamacpp: {install_command('demo')}")):
        llamacpp_server.serve_file(path)


def test_a_file_that_llamacpp_cannot_load_shows_its_log(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(UpstreamError, match="while starting"):
        llamacpp_server.serve_file(path, folder=tmp_path)
