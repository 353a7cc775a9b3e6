"""Real sandboxes of bubblewrap for tests; skipped where this machine makes none."""

from functools import cache

import environments
import pytest
from recipes.recipe import CannotMakeError

from promptools.harness.sandbox import BubblewrapSandbox


@cache
def program():
    try:
        return str(environments.path_of("bubblewrap"))
    except CannotMakeError as error:
        return error


def sandboxed(root, **options):
    bwrap = program()
    if isinstance(bwrap, CannotMakeError):
        pytest.skip(str(bwrap))
    return BubblewrapSandbox(root, bwrap=bwrap, **options)
