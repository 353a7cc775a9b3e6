"""What a scripted vLLM answers; it reads the lines outside promptools, so the rules are written there once more."""

import os

import pytest
from rig.inside_vllm.scripted.lines import FileLine, ScriptFile, choose
from rig.vllm import write_script

from promptools.lab.script import ScriptedReply as Told

LINES = [
    FileLine("Hi", "Hello.", None),
    FileLine("Hi", "Hello, prompted.", "JSON please"),
    FileLine("Hi there", "Hello over there.", None),
    FileLine("Only prompted", "Yes.", "JSON please"),
    FileLine("Only prompted", "Yes, as XML.", "XML please"),
    FileLine(None, "What?", None),
]


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("Hi", "Hello."),
        ("JSON please. Hi", "Hello, prompted."),
        ("Hi. JSON please.", "Hello, prompted."),
        ("XML please. Hi", "Hello."),
        ("Hi there", "Hello over there."),
        ("Hi there. Hi", "Hello."),
        ("Hi. Hi there", "Hello over there."),
        ("JSON please, no, XML please. Only prompted", "Yes, as XML."),
        ("Only prompted", ""),
        ("JSON please", "What?"),
        ("", "What?"),
    ],
)
def test_the_latest_cue_is_answered_under_the_latest_setting(prompt, said):
    assert choose(prompt, LINES) == said


def test_a_script_without_lines_says_nothing():
    assert choose("Hi", []) == ""
    assert choose("Hi", [FileLine("Ho", "x", None)]) == ""


def test_a_changed_script_is_read_again(tmp_path):
    path = tmp_path / "lines.json"
    write_script([Told("Hi", "Hello."), Told("Hi", "Grüße! 🙂", setting="German")], path)
    script = ScriptFile(path)
    assert script.answer("Hi") == "Hello."
    assert script.answer("German: Hi") == "Grüße! 🙂"
    write_script([Told("Hi", "Bye.")], path)
    assert script.answer("Hi") == "Bye."


def test_one_that_stays_is_read_once(tmp_path):
    path = tmp_path / "lines.json"
    write_script([Told("Hi", "Hello.")], path)
    script = ScriptFile(path)
    assert script.answer("Hi") == "Hello."
    before = path.stat()
    path.write_text(path.read_text().replace("Hello.", "Other."))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert script.answer("Hi") == "Hello."
