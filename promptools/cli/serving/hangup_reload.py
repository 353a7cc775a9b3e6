"""Read the config of `promptools serve` again on SIGHUP."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from promptools.cli.shared_arguments import read_config
from promptools.errors import UsageError
from promptools.log import log
from promptools.proxy import Extension

if TYPE_CHECKING:
    import argparse

    from promptools.profiles import Config
    from promptools.proxy import Proxy

_HANGUP: int | None = getattr(signal, "SIGHUP", None)
"""None: the platform has no such signal."""


def extensions(arguments: argparse.Namespace, config: Config) -> list[Extension]:
    """Return the extension, if there is a config that lists servers."""
    return [ReloadOnHangup(arguments.config)] if config.providers else []


class ReloadOnHangup(Extension):
    """Reloads the proxy with the file that `--config` names, or else the first one that is found."""

    def __init__(self, config: str | None) -> None:
        self._config = config

    async def start(self, proxy: Proxy) -> None:
        """Install the handler of the signal."""
        if _HANGUP is not None:
            asyncio.get_running_loop().add_signal_handler(_HANGUP, self._reload, proxy)

    async def stop(self) -> None:
        """Remove the handler."""
        if _HANGUP is not None:
            asyncio.get_running_loop().remove_signal_handler(_HANGUP)

    def _reload(self, proxy: Proxy) -> None:
        """Reload; a config with an error changes nothing."""
        try:
            config = read_config(self._config)
            proxy.reload(config)
        except UsageError as error:
            log.warning("the config was not reloaded, and the old one stays: %s", error)
        else:
            log.info("the config was reloaded: %s", config.file)
