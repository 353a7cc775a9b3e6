"""The public names are exactly those of `__all__`, and every one is there."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

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


def test_dir_lists_the_public_names_and_no_others():
    shown = {name for name in dir(promptools) if not name.startswith("_")}
    assert shown == {*promptools.__all__}
    assert all(hasattr(promptools, name) for name in dir(promptools))


def test_type_checkers_see_each_name_in_the_module_that_it_is_loaded_from():
    tree = ast.parse(Path(promptools.__file__).read_text(encoding="utf-8"))
    branch = next(each for each in tree.body if isinstance(each, ast.If))
    seen = {name.name: each.module for each in branch.body for name in each.names}
    assert seen == {**promptools._LAZY, "errors": "promptools", "types": "promptools"}
    assert sorted(seen) == promptools.__all__


def test_public_things_are_documented():
    for name in promptools.__all__:
        thing = getattr(promptools, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name


def test_the_promised_names():
    promised = {
        "Agent", "AgentPolicy", "Breaker", "CallEnd", "CallEvent", "Compaction", "Config", "Event", "Observer", "Proxy",
        "RunContext", "RunEvent", "RunLimits", "Settings", "Text", "Transcript", "load_config",
        "AsyncOpenAI", "Exhausted", "ModelError", "OpenAI", "PromptoolsError", "Reply", "StreamParser", "Tools",
        "UpstreamError", "UsageError", "parse", "render", "resolve", "run_tools", "run_tools_async", "wrap",
    }  # fmt: skip
    assert promised <= set(promptools.__all__)
