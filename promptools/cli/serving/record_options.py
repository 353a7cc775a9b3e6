"""The options of `promptools serve` that record raw replies."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from promptools.cli.shared_arguments import at_least
from promptools.errors import UsageError
from promptools.recording.recorder import DEFAULT_LIMIT, MIN_LIMIT, Recorder

if TYPE_CHECKING:
    from promptools.profiles import Config
    from promptools.proxy import Extension


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--record", metavar="DIR", help="record raw replies and their tools in this directory")
    parser.add_argument(
        "--record-messages",
        action="store_true",
        help="also record the requests' messages, which contain what users write",
    )
    parser.add_argument(
        "--record-limit",
        type=at_least(MIN_LIMIT, "bytes"),
        metavar="BYTES",
        help="maximum size of all recordings; the oldest are deleted (default: 256 MiB)",
    )
    parser.add_argument(
        "--redact",
        metavar="PATTERN",
        action="append",
        default=[],
        help="regular expression for text to leave out of recordings; can be repeated",
    )


def extensions(arguments: argparse.Namespace, config: Config) -> list[Extension]:
    """Return the extension, if replies are to be recorded; the config's patterns are added to those of the command."""
    if arguments.record is None:
        if arguments.record_messages or arguments.record_limit or arguments.redact:
            raise UsageError("--record-messages, --record-limit and --redact belong to a recording: add --record DIR")
        return []
    from promptools.proxy.operations import RecordingExtension

    limit = arguments.record_limit or DEFAULT_LIMIT
    patterns = (*config.proxy.redact, *arguments.redact)
    return [
        RecordingExtension(Recorder(arguments.record, redact=patterns, messages=arguments.record_messages, limit=limit))
    ]
