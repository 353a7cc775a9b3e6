"""This process as a driver of Ray: a cluster that runs already, or one on this machine that ends with the process."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from promptools.errors import PromptoolsError, UsageError, clip, without_credentials

CLIENT_SCHEME = "ray://"
HEADROOM = "the same command goes on"


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

    Without an address it is `RAY_ADDRESS`, a cluster that runs on this machine, or a new one. Raises `UsageError` if
    there is no such cluster, and `PromptoolsError` for errors of Ray in the block.
    """
    if address and address.startswith(CLIENT_SCHEME):
        raise UsageError(
            f"{without_credentials(address)!r} is a Ray Client server, through which files of this machine cannot be"
            " read; run the command on a node of the cluster, or with `ray job submit`"
        )
    # a cluster that is started here reports nothing to anybody
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_ray()
    connected = ray.is_initialized()
    if not connected:
        _connect(ray, address)
    try:
        with _errors_of(ray):
            yield ray
    finally:
        if not connected:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    try:
        ray.init(address or None, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        shown = f"the Ray cluster at {without_credentials(address)!r}" if address else "a Ray cluster"
        raise UsageError(f"cannot connect to {shown}: {_first_line(error)}") from error


@contextmanager
def _errors_of(ray: Any) -> Generator[None, None, None]:
    """Raise a short error in place of Ray's, which have the stacks of several processes."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise PromptoolsError(f"Ray: {_first_line(error)}; nothing is lost: the same command goes on") from error


def _first_line(error: BaseException) -> str:
    text = without_credentials(str(error)).strip()
    # of a task's error, the last line is what was raised
    lines = text.splitlines() or [type(error).__name__]
    return clip(lines[-1] if len(lines) > 1 and "Traceback" in text else lines[0])
