"""The public names are exactly those of `__all__`, and every one is there."""

import inspect
import subprocess
import sys

import promptools


def test_all_is_sorted_and_whole():
    assert list(promptools.__all__) == sorted(promptools.__all__)
    assert len(set(promptools.__all__)) == len(promptools.__all__)
    for name in promptools.__all__:
        assert getattr(promptools, name) is not None, name


def test_nothing_else_is_public():
    code = (
        "import promptools, types; own = vars(promptools);"
        "print(*(n for n in own if n[0] != '_' and not isinstance(own[n], types.ModuleType)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - {"annotations", "TYPE_CHECKING"} <= set(promptools.__all__)


def test_dir_lists_the_public_names():
    assert set(promptools.__all__) <= set(dir(promptools))


def test_public_things_are_documented():
    for name in promptools.__all__:
        thing = getattr(promptools, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name


def test_the_promised_names():
    promised = {
        "Agent", "AgentPolicy", "Compaction", "RunContext", "RunLimits", "Transcript",
        "AsyncOpenAI", "Exhausted", "ModelError", "OpenAI", "PromptoolsError", "Reply", "StreamParser", "Tools",
        "UpstreamError", "UsageError", "parse", "render", "resolve", "run_tools", "run_tools_async", "wrap",
    }  # fmt: skip
    assert promised <= set(promptools.__all__)
