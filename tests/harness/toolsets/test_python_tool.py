"""The tool `python`: in a new interpreter for each call, and in one that is kept."""

import threading
import time

import pytest
from bubblewrapped import sandboxed
from waiting import LIMITS

from promptools.harness.sandbox import CommandLimits, LocalSandbox
from promptools.harness.sandbox.processes import interruptible
from promptools.harness.toolsets.agent_tool import ToolTimeoutError
from promptools.harness.toolsets.in_distribution import PythonSession, container_exec, plain_observation


@pytest.fixture(params=["local", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)])
def sandbox(request, tmp_path):
    limits = CommandLimits(timeout=300)
    made = (
        LocalSandbox(tmp_path, allow_unsandboxed=True, limits=limits)
        if request.param == "local"
        else sandboxed(tmp_path, limits=limits)
    )
    yield made
    made.close()


@pytest.fixture
def stateful(sandbox):
    session = PythonSession(sandbox, stateful=True, timeout=300)
    yield session
    session.close()


@pytest.fixture
def stateless(sandbox):
    return PythonSession(sandbox, stateful=False, timeout=300)


def test_what_is_printed_and_the_last_value_come_back(stateful, stateless):
    for session in (stateful, stateless):
        assert session.run("print('a'); b = 2\nb + 1") == "a\n3\n"
        assert session.run("None") == "[no output, exit code 0]"
        assert session.run("") == "[no output, exit code 0]"
        assert session.run("import sys; print('e', file=sys.stderr); print('é ✓ \\ud800')").startswith("e\né ✓ ")


def test_variables_are_kept_or_not(stateful, stateless):
    for session in (stateful, stateless):
        session.run("import math\ndef f(): return math.pi\nx = 41")
    assert stateful.run("x + 1, f()") == "(42, 3.141592653589793)\n"
    assert "NameError" in stateless.run("x")


def test_an_error_has_a_traceback_of_the_code_alone(stateful):
    text = stateful.run("def f():\n    return 1 / 0\nf()")
    assert "return 1 / 0" in text
    assert "ZeroDivisionError" in text
    assert text.endswith("[exit code 1]")
    assert "worker" not in text
    assert "exec(" not in text
    assert "SyntaxError" in stateful.run("def (")
    assert stateful.run("1") == "1\n"


def test_exit_ends_the_code_and_not_the_interpreter(stateful):
    stateful.run("x = 1")
    assert stateful.run("exit(0)\nprint('not')") == "[no output, exit code 0]"
    assert stateful.run("import sys; sys.exit('why')").endswith("[exit code 1]")
    assert stateful.run("x") == "1\n"


def test_a_time_out_starts_a_new_interpreter(sandbox):
    session = PythonSession(sandbox, stateful=True, timeout=300)
    session.run("x = 1")
    for seconds in LIMITS:
        session._timeout = seconds
        with pytest.raises(ToolTimeoutError) as caught:
            session.run("print('begun', flush=True)\nwhile True: pass")
        if caught.value.output:  # it had begun
            break
    session._timeout = 300
    assert caught.value.output == "begun\n"
    text = caught.value.observation
    assert text.startswith(f"begun\n[the command was ended after {seconds} seconds")
    assert text.endswith("the next call gets a new one]")
    assert "NameError" in session.run("x")
    assert session.run("2") == "2\n"
    session.close()


def test_an_interpreter_that_dies_is_replaced(stateful):
    text = stateful.run("import os; print('last', flush=True); os._exit(3)")
    assert text.startswith("last\n[exit code")
    assert text.endswith("the next call gets a new one]")
    assert stateful.run("1") == "1\n"


def test_code_cannot_read_the_requests(stateful):
    assert "EOFError" in stateful.run("input()")
    assert stateful.run("import sys, os; sys.stdin.read(), os.read(0, 10)") == "('', b'')\n"


def test_output_of_processes_is_in_order(stateful):
    assert stateful.run("import os\nprint('1', flush=True)\nos.system('echo 2')\nprint(3)") == "1\n2\n3\n"


def test_what_a_thread_writes_afterwards_does_not_confuse_it(stateful):
    late = "    go.wait()\n    print('late', end='')"
    begin = "go = threading.Event()\nthread = threading.Thread(target=late)\nthread.start()"
    assert stateful.run(f"import threading\ndef late():\n{late}\n{begin}") == "[no output, exit code 0]"
    assert stateful.run("go.set(); thread.join(); 'now'") == "late'now'\n"


@pytest.mark.parametrize("text", ["\\x1e", "\\x1e" * 100, "x" * 40])
def test_what_looks_like_the_beginning_of_the_end_is_output(stateful, text):
    assert stateful.run(f"print('{text}' + '1')") == f"{text.encode().decode('unicode_escape')}1\n"


def test_much_output_is_cut(stateful):
    text = stateful.run("for n in range(100_000): print(n)")
    assert text.startswith("0\n1\n")
    assert "were left out here" in text
    assert text.endswith("99999\n")
    assert len(text) < 10_200


def test_large_code_arrives(stateful):
    assert stateful.run(f"len({'x' * 200_000!r})") == "200000\n"


def test_calls_from_several_threads_take_turns(stateful):
    stateful.run("total = 0")
    threads = [threading.Thread(target=stateful.run, args=("total += 1",)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stateful.run("total") == "5\n"


@pytest.mark.bubblewrap
def test_memory_of_the_interpreter_is_limited(tmp_path):
    sandbox = sandboxed(tmp_path, limits=CommandLimits(timeout=300, memory=100 << 20))
    session = PythonSession(sandbox, stateful=True, timeout=300)
    code = (
        "import mmap, time; m = mmap.mmap(-1, 300 * 2**20); [m.write(b'x' * 2**20) for _ in range(150)]; time.sleep(60)"
    )
    assert "bytes of memory]" in session.run(code)
    assert session.run("1") == "1\n"
    session.close()


def test_what_runs_ends_when_it_is_interrupted(sandbox, stateful):
    """A command, and code in an interpreter that is kept, which is a new one afterwards."""
    ended = "[the command was ended: it was interrupted]"
    command = container_exec(sandbox, plain_observation, 300)
    code = "x = 1; open('python', 'w').close(); print('begun', flush=True); import time; time.sleep(1000)"
    for name, run in (
        ("shell", lambda: command("echo begun; touch shell; sleep 1000")),
        ("python", lambda: stateful.run(code)),
    ):
        interruption = threading.Event()
        watcher = threading.Thread(target=set_when_there, args=(sandbox.root / name, interruption))
        watcher.start()
        with interruptible(interruption):
            text = run()
        watcher.join()
        assert text.startswith(f"begun\n{ended}")
    assert "NameError" in stateful.run("x")


def set_when_there(file, event):
    while not file.exists():
        time.sleep(0.01)
    event.set()
