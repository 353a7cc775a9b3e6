"""What each dialect writes around calls and results: the snapshots are read in review."""

import pytest
from syrupy.assertion import SnapshotAssertion

from promptools import dialects
from promptools.dialects.contract import Textual
from promptools.dialects.readers.marked_json import MarkedJson
from promptools.dialects.written_markup import NO_MARKUP, written_markup


def test_the_markers_of_each_dialect(snapshot: SnapshotAssertion) -> None:
    table = {name: [sorted(kind) for kind in written_markup(name)] for name in dialects.names()}
    assert (
        "\n".join(f"{name}: {' '.join(tokens)} {labels or ''}" for name, (tokens, labels) in table.items()) == snapshot
    )


@pytest.mark.parametrize("name", dialects.names())
def test_a_dialect_has_markers(name: str) -> None:
    assert any(written_markup(name))


def test_a_dialect_of_the_app_has_them_too() -> None:
    dialects.register(MarkedJson("acme", {"<|acme|>": "<|/acme|>"}, result="[ACME]{content}[/ACME]"))
    try:
        assert written_markup("acme").tokens == {"<|acme|>", "<|/acme|>", "[ACME]", "[/ACME]"}
    finally:
        dialects.unregister("acme")


def test_one_that_is_only_read_has_none() -> None:
    class Silent(Textual):
        name = "silent"

    dialects.register(Silent())  # type: ignore[arg-type]  # it is never read in
    try:
        assert written_markup("silent") == NO_MARKUP
    finally:
        dialects.unregister("silent")
