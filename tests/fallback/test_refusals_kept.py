"""What servers refused, remembered for an hour."""

from threading import Thread

from promptools.fallback import Refusals, Rewording
from promptools.fallback.refusals import MAX_REWORDINGS

PLACE = ("local", "m")
FIRST = Rewording("system_first")
STORE = Rewording("without_params", ("store",))


def test_it_is_known_for_an_hour_and_then_asked_again():
    refusals = Refusals()
    refusals.add(PLACE, FIRST, 100.0)
    refusals.add(PLACE, STORE, 200.0)
    assert refusals.get(PLACE, 3699.0) == (FIRST, STORE)
    assert refusals.get(PLACE, 3700.0) == (STORE,)
    assert refusals.get(PLACE, 3800.0) == ()


def test_it_is_known_of_one_server_and_model():
    refusals = Refusals()
    refusals.add(PLACE, FIRST, 0.0)
    assert refusals.get(("local", "other"), 1.0) == refusals.get(("other", "m"), 1.0) == ()


def test_a_provider_that_changed_is_forgotten():
    refusals = Refusals()
    for place in (PLACE, ("local", "n"), ("other", "m")):
        refusals.add(place, FIRST, 0.0)
    refusals.forget("local")
    assert refusals.get(PLACE, 1.0) == refusals.get(("local", "n"), 1.0) == ()
    assert refusals.get(("other", "m"), 1.0) == (FIRST,)


def test_the_oldest_are_evicted():
    refusals = Refusals(limit=2)
    for number in range(5):
        refusals.add(("local", str(number)), FIRST, float(number))
    assert [bool(refusals.get(("local", str(number)), 5.0)) for number in range(5)] == [False, False, False, True, True]


def test_of_one_model_the_latest_are_kept():
    refusals = Refusals()
    made = [Rewording("no_reasoning", beside=str(number)) for number in range(MAX_REWORDINGS + 10)]
    for rewording in made:
        refusals.add(PLACE, rewording, 0.0)
    assert refusals.get(PLACE, 1.0) == tuple(made[10:])


def test_threads_share_it():
    refusals = Refusals(limit=50)

    def work(name):
        for number in range(200):
            refusals.add((name, str(number % 60)), Rewording("without_params", (str(number),)), float(number))
            refusals.get((name, str(number % 60)), float(number))

    threads = [Thread(target=work, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refusals._known) <= 54
