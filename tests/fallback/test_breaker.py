"""The breaker's states over an injected clock."""

from promptools.fallback import Breaker, Key

KEY = Key("local", "m", "native")


def test_closed_until_enough_failures_fall_into_the_window():
    breaker = Breaker(threshold=3, window=10)
    for at in (0, 1, 11):
        breaker.failed(KEY, at)
    assert breaker.state(KEY, 11) == "closed"
    assert breaker.admits(KEY, 11)
    breaker.failed(KEY, 10.5)
    assert breaker.state(KEY, 11) == "closed"
    breaker.failed(KEY, 12)
    assert breaker.state(KEY, 12) == "open"
    assert not breaker.admits(KEY, 12)


def test_one_lasting_failure_opens():
    breaker = Breaker(cool_down=5)
    assert breaker.why(KEY) == ""
    breaker.failed(KEY, 100, why="no_native_tools", lasting=True)
    assert breaker.why(KEY) == "no_native_tools"
    assert breaker.lines(104) == {KEY: "open"}
    assert breaker.lines(105) == {KEY: "half-open"}


def test_one_probe_decides():
    breaker = Breaker(cool_down=5)
    breaker.failed(KEY, 0, lasting=True)
    assert breaker.admits(KEY, 5)
    assert not breaker.admits(KEY, 6)
    breaker.failed(KEY, 7)
    assert breaker.state(KEY, 8) == "open"
    assert breaker.admits(KEY, 12)
    breaker.worked(KEY)
    assert breaker.state(KEY, 12) == "closed"
    breaker.worked(KEY)


def test_a_probe_that_never_reports_gives_its_place_up():
    breaker = Breaker(cool_down=5)
    breaker.failed(KEY, 0, lasting=True)
    assert breaker.admits(KEY, 5)
    assert not breaker.admits(KEY, 9.9)
    assert breaker.admits(KEY, 10)


def test_lines_are_bounded_least_recently_used_first():
    breaker = Breaker(limit=2)
    a, b, c = (Key("p", name, "native") for name in "abc")
    breaker.failed(a, 0)
    breaker.failed(b, 0)
    breaker.failed(a, 1)
    breaker.failed(c, 2)
    assert set(breaker.lines(2)) == {a, c}
