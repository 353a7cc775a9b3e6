"""A name that is not known is answered with the one that was probably meant, in settings, options and dialects too."""

import pytest

import promptools
from promptools import UsageError, dialects
from promptools.errors import did_you_mean, suggest
from promptools.modes.options import Options
from promptools.transport import Session


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: Session({"moed": "native"}), "unknown setting 'moed'; did you mean 'mode'? known: accept, "),
        (
            lambda: Session({"dialect": "hermse"}),
            "There is no dialect 'hermse'; did you mean 'hermes'? `promptools dia",
        ),
        (lambda: Session({"accept": ["hermse"]}), "promptools.accept must be a list of dialects"),
        (
            lambda: dialects.get("hermse"),
            "There is no dialect 'hermse'; did you mean 'hermes'? `promptools dialects` l",
        ),
        (lambda: promptools.parse("x", dialect="hermse"), "There is no dialect 'hermse'; did you mean 'hermes'? `"),
        (
            lambda: promptools.parse("x", accept=["hermse"]),
            "'hermse' is not a known dialect; did you mean 'hermes'? known: an",
        ),
        (lambda: Options().override({"mdoe": "raw"}), "promptools: unknown option 'mdoe'; did you mean 'mode'? known"),
        (lambda: Options().override({"mode": "natvie"}), "'raw', or null, not 'natvie'; did you mean 'native'?"),
        (
            lambda: promptools.resolve("m", overrides={"dialect": "hermse"}),
            "dialect: there is no dialect 'hermse'; did you mean 'hermes'? `promptools dialects` lists all of them",
        ),
    ],
)
def test_what_was_probably_meant(wrong, told):
    with pytest.raises(UsageError) as raised:
        wrong()
    assert told in str(raised.value)


def test_without_anything_like_it():
    assert did_you_mean("zzz", ["native"]) == ""
    assert suggest("zzz", []) == "known: none"
    with pytest.raises(UsageError, match=r"not 'zzz'$"):
        Options().override({"mode": "zzz"})


def test_two_letters_that_changed_places_come_before_a_shorter_word():
    assert did_you_mean("--modle", ["--mode", "--model"]) == "did you mean '--model'? "
    assert did_you_mean("--mod", ["--mode", "--model"]) == "did you mean '--mode'? "


def test_a_long_word_costs_little():
    """A request may hold any text where a name belongs."""
    assert did_you_mean("native" * 1_000_000, ["native"]) == ""
