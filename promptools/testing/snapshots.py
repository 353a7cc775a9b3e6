"""Snapshots of replies with syrupy. They hold what an app sees of a reply, without ids, text positions and times."""

from __future__ import annotations

from typing import Any

from syrupy.extensions.amber import AmberSnapshotExtension

from promptools.parsing.description import describe_reply
from promptools.types import Reply


class ReplySnapshotExtension(AmberSnapshotExtension):
    """Serializes a `Reply` as its calls, fixes, malformed calls, content and reasoning; other values as in syrupy."""

    def serialize(self, data: Any, **options: Any) -> Any:
        """Return the text that the snapshot stores for `data`."""
        if isinstance(data, Reply):
            data = describe_reply(data)
        return super().serialize(data, **options)
