"""This process as a driver of Ray: a cluster that runs already, or one on this machine that ends with the process."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from typing import Any

from promptools.errors import PromptoolsError, UsageError, clip, without_credentials

CLIENT_SCHEME = "ray://"
CONNECT_SECONDS = 10.0


def import_ray() -> Any:
    """Return the package `ray`, with Ray Data; raise `UsageError` if it is not installed."""
    try:
        ray = import_module("ray")
        import_module("ray.data")
        import_module("pyarrow")
    except ImportError:
        raise UsageError("--ray needs Ray Data: pip install 'promptools-compat[batch,ray]'") from None
    return ray


@contextmanager
def ray_session(address: str | None) -> Generator[Any, None, None]:
    """Connect to the cluster at `address` and yield the package `ray`; a connection that exists already is kept.

    Without an address it is `RAY_ADDRESS`, a cluster that runs on this machine, or a new one. Until the session ends,
    whatever is printed goes to stderr, since Ray prints the errors of its processes, and stdout is for results.

    Raises `UsageError` if there is no such cluster, and `PromptoolsError` for errors of Ray in the block.
    """
    if address and address.startswith(CLIENT_SCHEME):
        raise UsageError(
            f"{without_credentials(address)!r} is a Ray Client server, through which files of this machine cannot be"
            " read; run the command on a node of the cluster, or with `ray job submit`"
        )
    ray = import_ray()
    connected = ray.is_initialized()
    with redirect_stdout(sys.stderr):
        if not connected:
            _connect(ray, address)
        for handler in logging.getLogger("ray.data").handlers:
            if isinstance(handler, logging.StreamHandler):  # errors are raised, too; the file in the session has all
                handler.setLevel(logging.CRITICAL)
        try:
            with _errors_of(ray):
                yield ray
        finally:
            if not connected:
                ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    # a cluster that is started here reports nothing to anybody
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # else Ray's core warns on stderr that actors of Ray Data have arguments in the store, where this process keeps them
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    if address:
        _check_address(address)
    shown = f"the Ray cluster at {without_credentials(address)!r}" if address else "the Ray cluster"
    try:
        ray.init(address or None, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, ray.exceptions.AuthenticationError) as error:
        raise UsageError(
            f"cannot connect to {shown}: {_first_line(error)}; if it asks for a token, set RAY_AUTH_MODE=token, and"
            " RAY_AUTH_TOKEN unless ~/.ray/auth_token has it"
        ) from error
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"cannot connect to {shown}: {_first_line(error)}") from error


def _check_address(address: str) -> None:
    """Raise `UsageError` if nothing listens at HOST:PORT: Ray's core would end the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():  # as `auto`
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"there is no Ray cluster at {address!r}: {getattr(error, 'strerror', None) or error}; start one with `ray"
            " start --head`, or leave the address out"
        ) from error


@contextmanager
def _errors_of(ray: Any) -> Generator[None, None, None]:
    """Raise a short error in place of Ray's, which have the stacks of several processes."""
    try:
        yield
    except ray.exceptions.RayError as error:
        if isinstance(cause := getattr(error, "cause", None), PromptoolsError):
            raise cause from error
        raise PromptoolsError(f"Ray: {_first_line(error)}; nothing is lost: the same command goes on") from error


def _first_line(error: BaseException) -> str:
    """Return what happened, without the stacks: of the error of a task, what the task raised."""
    cause = getattr(error, "cause", None)
    text = f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else str(error) or type(error).__name__
    return clip(without_credentials(text.strip().splitlines()[0]))
