"""The breaker's states over an injected clock."""

from promptools.fallback import Breaker, BreakerKey

KEY = BreakerKey("local", "m", "native")


def test_closed_until_enough_failures_fall_into_the_window():
    breaker = Breaker(threshold=3, window=10)
    for at in (0, 1, 11):
        breaker.record_failure(KEY, at)
    assert breaker.state(KEY, 11) == "closed"
    assert breaker.allows(KEY, 11)
    breaker.record_failure(KEY, 10.5)
    assert breaker.state(KEY, 11) == "closed"
    breaker.record_failure(KEY, 12)
    assert breaker.state(KEY, 12) == "open"
    assert not breaker.allows(KEY, 12)


def test_one_lasting_failure_opens():
    breaker = Breaker(cool_down=5)
    assert breaker.why(KEY) == ""
    breaker.record_failure(KEY, 100, why="no_native_tools", lasting=True)
    assert breaker.why(KEY) == "no_native_tools"
    assert breaker.states(104) == {KEY: "open"}
    assert breaker.states(105) == {KEY: "half-open"}


def test_one_probe_decides():
    breaker = Breaker(cool_down=5)
    breaker.record_failure(KEY, 0, lasting=True)
    assert breaker.allows(KEY, 5)
    assert not breaker.allows(KEY, 6)
    breaker.record_failure(KEY, 7)
    assert breaker.state(KEY, 8) == "open"
    assert breaker.allows(KEY, 12)
    breaker.record_success(KEY)
    assert breaker.state(KEY, 12) == "closed"
    breaker.record_success(KEY)


def test_a_probe_that_never_reports_gives_its_place_up():
    breaker = Breaker(cool_down=5)
    breaker.record_failure(KEY, 0, lasting=True)
    assert breaker.allows(KEY, 5)
    assert not breaker.allows(KEY, 9.9)
    assert breaker.allows(KEY, 10)


def test_lines_are_bounded_least_recently_used_first():
    breaker = Breaker(limit=2)
    a, b, c = (BreakerKey("p", name, "native") for name in "abc")
    breaker.record_failure(a, 0)
    breaker.record_failure(b, 0)
    breaker.record_failure(a, 1)
    breaker.record_failure(c, 2)
    assert set(breaker.states(2)) == {a, c}
