"""tenacity's own objects over our state."""

import tenacity

from promptools.fallback import RetryPolicy


def test_without_policies_there_is_always_another_send_at_once():
    policy = RetryPolicy(5.0)
    policy.count_attempt()
    assert policy.next_wait(1e9) == 0.0
    assert policy.seconds_left(1e9) is None


def test_stop_after_attempt():
    policy = RetryPolicy(0, stop=tenacity.stop_after_attempt(2))
    policy.count_attempt()
    assert policy.next_wait(0) == 0.0
    policy.count_attempt()
    assert policy.next_wait(0) == "the stop policy allowed no more than 2 sends"


def test_stop_after_delay_and_before_delay_run_on_the_injected_clock():
    policy = RetryPolicy(
        100, stop=tenacity.stop_after_delay(10) | tenacity.stop_before_delay(8), wait=tenacity.wait_fixed(3)
    )
    policy.count_attempt()
    assert policy.next_wait(104) == 3.0
    assert isinstance(policy.next_wait(105), str)
    assert policy.state.seconds_since_start == 5


def test_waits_compose_and_are_counted_as_idle():
    wait = tenacity.wait_fixed(1) + tenacity.wait_incrementing(start=1, increment=1)
    policy = RetryPolicy(0, wait=wait)
    policy.count_attempt()
    assert policy.next_wait(0) == 2.0
    policy.count_attempt()
    assert policy.next_wait(2) == 3.0
    assert policy.state.idle_for == 5.0


def test_exponential_wait_grows_with_the_attempts():
    policy = RetryPolicy(0, wait=tenacity.wait_exponential(multiplier=1, max=10))
    waits = []
    for _ in range(4):
        policy.count_attempt()
        waits.append(policy.next_wait(0))
    assert waits == [1, 2, 4, 8]


def test_any_function_is_a_policy():
    policy = RetryPolicy(0, stop=lambda state: state.attempt_number > 1, wait=lambda state: -1)
    policy.count_attempt()
    assert policy.next_wait(0) == 0.0


def test_the_deadline_bounds_waits_and_sends():
    policy = RetryPolicy(10, wait=tenacity.wait_fixed(2), deadline=5)
    policy.count_attempt()
    assert policy.seconds_left(12) == 3
    assert policy.next_wait(12) == 2.0
    assert policy.next_wait(13) == "the deadline of 5 s is used up"
    assert policy.seconds_left(20) == 0
