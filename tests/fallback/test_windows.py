"""The memory of raised contexts."""

from promptools.fallback import Windows

A, B = ("local", "a"), ("local", "b")


def test_what_was_raised_is_asked_for_again():
    windows = Windows()
    assert windows.size(A, 0) is None
    windows.raised(A, 8192, 1)
    assert windows.size(A, 2) == 8192
    assert windows.size(B, 2) is None
    windows.raised(A, 16384, 3)
    assert windows.size(A, 4) == 16384


def test_what_is_not_used_is_forgotten():
    windows = Windows(idle=10)
    windows.raised(A, 8192, 0)
    assert windows.size(A, 9.9) == 8192
    assert windows.size(A, 19.8) == 8192
    assert windows.size(A, 29.8) is None
    assert windows.size(A, 29.8) is None


def test_the_oldest_goes_first():
    windows = Windows(limit=1)
    windows.raised(A, 1, 0)
    windows.raised(B, 2, 0)
    assert windows.size(A, 0) is None
    assert windows.size(B, 0) == 2
