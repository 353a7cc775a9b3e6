"""tenacity's own objects over our state."""

import tenacity

from promptools.fallback import Policy


def test_without_policies_there_is_always_another_send_at_once():
    policy = Policy(5.0)
    policy.sent()
    assert policy.again(1e9) == 0.0
    assert policy.left(1e9) is None


def test_stop_after_attempt():
    policy = Policy(0, stop=tenacity.stop_after_attempt(2))
    policy.sent()
    assert policy.again(0) == 0.0
    policy.sent()
    assert policy.again(0) == "the stop policy allowed no more than 2 sends"


def test_stop_after_delay_and_before_delay_run_on_the_injected_clock():
    policy = Policy(
        100, stop=tenacity.stop_after_delay(10) | tenacity.stop_before_delay(8), wait=tenacity.wait_fixed(3)
    )
    policy.sent()
    assert policy.again(104) == 3.0
    assert isinstance(policy.again(105), str)
    assert policy.state.seconds_since_start == 5


def test_waits_compose_and_are_counted_as_idle():
    wait = tenacity.wait_fixed(1) + tenacity.wait_incrementing(start=1, increment=1)
    policy = Policy(0, wait=wait)
    policy.sent()
    assert policy.again(0) == 2.0
    policy.sent()
    assert policy.again(2) == 3.0
    assert policy.state.idle_for == 5.0


def test_exponential_wait_grows_with_the_attempts():
    policy = Policy(0, wait=tenacity.wait_exponential(multiplier=1, max=10))
    waits = []
    for _ in range(4):
        policy.sent()
        waits.append(policy.again(0))
    assert waits == [1, 2, 4, 8]


def test_any_function_is_a_policy():
    policy = Policy(0, stop=lambda state: state.attempt_number > 1, wait=lambda state: -1)
    policy.sent()
    assert policy.again(0) == 0.0


def test_the_deadline_bounds_waits_and_sends():
    policy = Policy(10, wait=tenacity.wait_fixed(2), deadline=5)
    policy.sent()
    assert policy.left(12) == 3
    assert policy.again(12) == 2.0
    assert policy.again(13) == "the deadline of 5 s is used up"
    assert policy.left(20) == 0
