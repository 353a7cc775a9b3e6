"""Replies that the app has got: each is still read as it was."""

from pathlib import Path

import pytest

from promptools.testing import assert_same_reading, recorded

CORPUS = Path(__file__).parents[1] / "corpus"


@pytest.mark.parametrize("row", recorded(CORPUS))
def test_it_is_read_as_it_was(row):
    assert_same_reading(row)
