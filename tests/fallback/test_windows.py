"""The memory of raised contexts."""

from promptools.fallback import ContextSizes

A, B = ("local", "a"), ("local", "b")


def test_what_was_raised_is_asked_for_again():
    windows = ContextSizes()
    assert windows.get(A, 0) is None
    windows.put(A, 8192, 1)
    assert windows.get(A, 2) == 8192
    assert windows.get(B, 2) is None
    windows.put(A, 16384, 3)
    assert windows.get(A, 4) == 16384


def test_what_is_not_used_is_forgotten():
    windows = ContextSizes(idle=10)
    windows.put(A, 8192, 0)
    assert windows.get(A, 9.9) == 8192
    assert windows.get(A, 19.8) == 8192
    assert windows.get(A, 29.8) is None
    assert windows.get(A, 29.8) is None


def test_the_oldest_goes_first():
    windows = ContextSizes(limit=1)
    windows.put(A, 1, 0)
    windows.put(B, 2, 0)
    assert windows.get(A, 0) is None
    assert windows.get(B, 0) == 2
