"""Programs on a real terminal: a pty of the kernel, and an emulator that shows what a user sees."""

import contextlib
import fcntl
import os
import pty
import selectors
import signal
import struct
import subprocess
import sys
import termios
import time

import pyte

COLUMNS, LINES = 120, 60
AGAIN_SECONDS = 5
SECONDS = 300
# the terminal becomes that of the new session, so that Ctrl-C there is an interrupt
TAKE = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"


class Terminal:
    """A program that runs on a terminal of its own; use it in a `with` block."""

    def __init__(self, command, **options):
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color", **options.pop("env", {})}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "CI"):
            env.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-c", TAKE, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env=env,
            **options,
        )
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._master)

    @property
    def text(self):
        """What is on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def wait_for(self, text):
        """Wait until a text is on the screen."""
        deadline = time.monotonic() + SECONDS
        while text not in self.text:
            assert time.monotonic() < deadline, f"{text!r} is not on the screen:\n{self.text}"
            assert self._read(1) or text in self.text, f"the program ended without {text!r}:\n{self.text}"

    def type(self, keys):
        """Press keys."""
        os.write(self._master, keys.encode())

    def wait(self, again=""):
        """Wait for the end of the program, and press `again` every few seconds; return its status."""
        pressed = time.monotonic()
        deadline = pressed + SECONDS
        while self._read(1):
            now = time.monotonic()
            assert now < deadline, f"the program does not end:\n{self.text}"
            if again and now - pressed > AGAIN_SECONDS:
                self.type(again)
                pressed = now
        return self._process.wait(SECONDS)

    def _read(self, seconds):
        """Read what the program has written; return whether it may write more."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._master, selectors.EVENT_READ)
            if not selector.select(seconds):
                return True
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the last program on the terminal has ended
            return False
        self.written += data
        self._stream.feed(data)
        return bool(data)
