"""`promptools eval bfcl`: the real bfcl-eval in its own environment, and a real llama.cpp with a scripted model."""

import json
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from urllib.parse import urlsplit

import environments
import openai
import pytest
from forking_bfcl import forking_python
from recipes.recipe import CannotMakeError
from upstream import running

from promptools.cli import main
from promptools.cli.serve_command import serve_in_thread
from promptools.errors import UsageError
from promptools.harness.evaluation.bfcl import (
    WORKER,
    BfclAnswer,
    BfclRunLog,
    read_answers,
    remove_failures,
    summarize_answers,
)
from promptools.harness.evaluation.bfcl_worker import choose
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply
from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.testing.scripted_server import ScriptedServer
from promptools.types import Call, Fix, Reply, Trace

ROOT = Path(__file__).parents[3]


def called(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


FACTORIAL, ACT, FOOTPRINT, RELIGION, POPE, FOOTBALL = QUESTIONS = [
    f"simple_python_{number}" for number in (97, 159, 195, 249, 255, 322)
]
"""Those that `--seed 3 --limit 6` takes."""
POPE_CALL = {
    "name": "religious_history_get_papal_biography",
    "arguments": {"papal_name": "Innocent III", "include_contributions": True},
}
SCRIPT = [
    ScriptedReply(None, "There is no function for that."),
    ScriptedReply("factorial of the number 5", called("math_factorial", number=5)),
    ScriptedReply(
        "Criminal Law Amendment Act",
        called("get_act_details", act_name="Criminal Law Amendment Act", amendment_year=2013),
    ),
    ScriptedReply(
        "carbon footprint of my lifestyle",
        called("calculate_carbon_footprint", daily_miles=21, meat_meals_per_week=3, annual_trash_weight=500),
    ),
    ScriptedReply("Christianity and its history", "It began in the first century."),
    # in the format of another model, which this server takes for text
    ScriptedReply("Pope Innocent III", f"[TOOL_CALLS] [{json.dumps(POPE_CALL)}]"),
    # several turns
    ScriptedReply("integrate Apple's stock", called("add_to_watchlist", stock="AAPL") + called("get_watchlist")),
    ScriptedReply('"watchlist": [', "Apple is on your list."),
    ScriptedReply("information about the stock NVDA", called("get_stock_info", symbol="NVDA")),
    ScriptedReply('"percent_change": ', "It has gone up."),
    ScriptedReply("Liverpool", called("sports_ranking_get_current", team="Liverpool", league="Premier League")),
]


@pytest.fixture(scope="module")
def python():
    try:
        return str(environments.path_of("bfcl"))
    except CannotMakeError as error:
        pytest.skip(f"no bfcl-eval: {error}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    with serve(
        SCRIPT, template="hermes", name="bench_1:a", context=65536, folder=tmp_path_factory.mktemp("bfcl")
    ) as running:
        yield running


@pytest.fixture(scope="module")
def loaded_python(python, tmp_path_factory):
    """The Python of bfcl-eval, which has loaded what that imports."""
    with forking_python(python, WORKER, tmp_path_factory.mktemp("forking")) as program:
        yield program


@pytest.fixture
def command(server, loaded_python, tmp_path):
    """The arguments of a run on six questions."""
    endpoint = ("--base-url", server.base_url, "--bfcl-python", loaded_python, "--output", str(tmp_path / "run"))
    return ["eval", "bfcl", *endpoint, "--categories", "simple_python", "--limit", "6", "--seed", "3"]


@pytest.fixture
def evaluate(command, capsys):
    """Run the benchmark; return the status and what was printed."""

    def run(*more):
        return main([*command, *more]), capsys.readouterr()

    return run


@contextmanager
def hanging_up():
    """A server that takes each connection and closes it."""
    with ThreadingTCPServer(("127.0.0.1", 0), BaseRequestHandler) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def lines_of(run):
    (path,) = run.glob("result/promptools/non_live/*_simple_python_result.json")
    return path.read_text().splitlines()


def correct(run):
    return {answer.id for answer in read_answers(run) if answer.correct}


def package_scores(run, category):
    """What the package itself counts."""
    (path,) = run.glob(f"score/promptools/*/*_{category}_score.json")
    return json.loads(path.read_text().splitlines()[0])


@pytest.mark.integrations
@pytest.mark.bfcl
class TestReal:
    """With the real package, which takes five seconds to load: once by a process of its own, then by forks."""

    def test_a_run_is_checked_and_has_a_report(self, evaluate, python, tmp_path):
        run = tmp_path / "run"
        own = ("--bfcl-python", python)
        status, printed = evaluate(*own, "--json", "--report", str(tmp_path / "report.md"), "--threads", "2")
        assert status == 0, printed.err
        figures = json.loads(printed.out)
        answers = {answer.id: answer for answer in read_answers(run)}
        assert list(answers) == QUESTIONS
        assert correct(run) == {FACTORIAL, ACT, POPE, FOOTBALL}  # FACTORIAL is `math.factorial`
        assert answers[FOOTPRINT].mistake == "value_error:others"
        assert answers[RELIGION].mistake == "ast_decoder:decoder_failed"
        assert figures["categories"]["simple_python"]["correct"] == figures["correct"] == 4
        assert figures["usage"]["completion_tokens"] > 12
        assert figures["replies"] == {"in native mode": 6, "with a repaired call": 1}
        assert "6/6 simple_python_" in printed.err
        counted = package_scores(run, "simple_python")
        assert (counted["correct_count"], counted["total_count"]) == (4, 6)
        page = (tmp_path / "report.md").read_text()
        assert "# BFCL: bench_1:a\n" in page
        assert "| simple_python | 66.7 % [" in page
        assert "| 4/6 | 0 |" in page

    def test_the_bare_server_misses_a_call(self, evaluate, tmp_path):
        status, printed = evaluate("--direct", "--json")
        assert status == 0, printed.err
        assert correct(tmp_path / "run") == {FACTORIAL, ACT, FOOTBALL}
        assert json.loads(printed.out)["replies"] == {}

    def test_a_run_that_was_killed_continues(self, command, evaluate, tmp_path):
        run = tmp_path / "run"
        with subprocess.Popen(
            [sys.executable, "-m", "promptools", *command, "--threads", "1"],
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        ) as process:
            assert next(line for line in process.stderr if line.startswith("1/6 "))
            process.kill()
        kept = lines_of(run)
        assert kept
        (path,) = run.glob("result/promptools/non_live/*")
        with path.open("a") as results:
            results.write('{"id": "simple_python_')
        status, printed = evaluate()
        assert status == 0, printed.err
        lines = lines_of(run)
        assert set(kept) <= set(lines)  # latencies too
        assert sorted(json.loads(line)["id"] for line in lines) == sorted(QUESTIONS)
        assert correct(run) == {FACTORIAL, ACT, POPE, FOOTBALL}
        status, printed = evaluate("--limit", "4")  # four of the six, which have been answered
        assert status == 0
        assert "| questions | 4 |" in printed.out
        assert lines_of(run) == lines

    def test_what_failed_is_wrong_and_is_asked_again(self, evaluate, tmp_path):
        common = ("--model", "m", "--direct", "--no-detect", "--categories", "irrelevance", "--limit", "2", "--json")
        with hanging_up() as url:
            status, printed = evaluate("--base-url", url, *common)
        assert status == 1
        figures = json.loads(printed.out)
        assert (figures["correct"], figures["failed"], figures["questions"]) == (0, 2, 2)
        assert package_scores(tmp_path / "run", "irrelevance")["correct_count"] == 2, "an error is no call"
        assert [answer.error for answer in read_answers(tmp_path / "run")] == ["Connection error."] * 2
        status, printed = evaluate(*common)
        assert status == 0
        assert json.loads(printed.out)["correct"] == 2

    def test_a_context_that_is_too_small_is_a_result(self, evaluate, tmp_path):
        small = serve(SCRIPT, template="hermes", name="small", context=1000, slots=1, folder=tmp_path / "small")
        with small:
            status, printed = evaluate("--base-url", small.base_url, "--json")
            assert status == 0, printed.err
            lines = lines_of(tmp_path / "run")
            assert evaluate("--base-url", small.base_url, "--json")[1].out == printed.out
        assert lines_of(tmp_path / "run") == lines
        assert json.loads(printed.out)["mistakes"]["simple_python: context_length_exceeded"] == 1
        answers = {answer.id: answer for answer in read_answers(tmp_path / "run")}
        assert answers[FOOTPRINT].mistake == "context_length_exceeded"
        assert answers[FACTORIAL].correct

    def test_what_overflowed_is_asked_again_as_often_as_wanted(self, evaluate, tmp_path):
        run, common = tmp_path / "run", ("--model", "m", "--json", "--overflow-retries")
        with serve(SCRIPT, template="hermes", name="small", context=1000, slots=1, folder=tmp_path / "small") as small:
            status, printed = evaluate("--base-url", small.base_url, *common, "1")
        assert status == 0, printed.err
        assert json.loads(printed.out)["mistakes"]["simple_python: context_length_exceeded"] == 1
        assert printed.err.count(f" {FOOTPRINT}: ") == 2
        before = {json.loads(line)["id"]: line for line in lines_of(run)}
        assert evaluate(*common, "1")[0] == 0, "all retries are made: with the larger context, nothing is asked"
        assert {json.loads(line)["id"]: line for line in lines_of(run)} == before
        status, printed = evaluate(*common, "2")
        assert status == 0, printed.err
        assert {answer.id: answer.mistake for answer in read_answers(run)}[FOOTPRINT] == "value_error:others"
        after = {json.loads(line)["id"]: line for line in lines_of(run)}
        assert {name for name in before if after[name] != before[name]} == {FOOTPRINT}

    def test_several_turns(self, evaluate, tmp_path):
        """The model sees what the package's functions return, and calls the next one."""
        status, printed = evaluate("--categories", "multi_turn_base", "--limit", "1", "--seed", "22", "--json")
        assert status == 0, printed.err
        (answer,) = read_answers(tmp_path / "run")
        assert (answer.id, answer.correct) == ("multi_turn_base_133", True), answer
        assert json.loads(printed.out)["replies"]["in native mode"] == 4
        assert answer.prompt_tokens > 10_000

    def test_unknown_categories_and_other_settings_are_refused(self, evaluate):
        status, printed = evaluate("--categories", "simple_pithon")
        assert status == 2
        assert "Invalid test category name provided: simple_pithon. There are: all, " in printed.err
        assert evaluate("--limit", "1")[0] == 0, "of one latency there is no deviation"
        status, printed = evaluate("--request", '{"temperature": 1}')
        assert status == 2
        assert "is the log of another run: request {}, and now {'temperature': 1}" in printed.err


# --- without the package ---------------------------------------------------------------------------------------------


@pytest.fixture
def simple():
    with running() as server:
        yield ["eval", "bfcl", "--base-url", server.url, "--model", "m", "--no-detect", "--output"]


@pytest.mark.parametrize(
    ("python", "problem"),
    [
        (("--bfcl-python", sys.executable), "cannot import bfcl_eval: No module named 'bfcl_eval'. It pins old"),
        (("--bfcl-python", "/no/such/python"), "there is no program '/no/such/python'"),
        ((), "bfcl-eval is not installed here. It pins old versions, so install it apart, with Python 3.10 to 3.12"),
    ],
)
def test_a_missing_package_is_told(simple, capsys, tmp_path, python, problem):
    for _ in range(2):  # what the first left in the folder is no reason to refuse it
        assert main([*simple, str(tmp_path / "run"), *python]) == 2
        error = capsys.readouterr().err
        assert problem in error
        assert "bfcl/bin/pip install bfcl-eval soundfile" in error


def test_a_process_that_ends_is_told_with_its_log(simple, capsys, tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho out of memory >&2\nexit 3\n")
    program.chmod(0o755)
    assert main([*simple, str(tmp_path / "run"), "--bfcl-python", str(program)]) == 1
    assert "bfcl-eval ended with status 3; its log" in (error := capsys.readouterr().err)
    assert "ends: out of memory" in error


def test_what_cannot_be_is_told_before_the_run(simple, capsys, tmp_path, monkeypatch):
    (tmp_path / "notes").write_text("mine")
    python = ("--bfcl-python", sys.executable)
    assert main([*simple, str(tmp_path), *python]) == 2
    assert "is not empty, and not the folder of a run" in capsys.readouterr().err
    assert main([*simple, str(tmp_path / "notes"), *python]) == 2
    assert "is a file; --output is a folder" in capsys.readouterr().err
    assert main([*simple, str(tmp_path / "run"), *python, "--direct", "--mode", "prompt"]) == 2
    assert "--mode is for the proxy" in capsys.readouterr().err
    monkeypatch.setenv("PROMPTOOLS_API_KEY", "the-secret")
    assert main([*simple, str(tmp_path / "run"), *python]) == 2
    assert "PROMPTOOLS_API_KEY is set" in (error := capsys.readouterr().err)
    assert "the-secret" not in error


def test_the_proxy_in_a_thread_passes_the_key_on_and_ends():
    upstream = ScriptedServer().play("It is sunny.")
    with closing(upstream):
        with serve_in_thread(Proxy(base_url=upstream.url, config=Config(), detect=False)) as address:
            client = openai.OpenAI(base_url=f"{address}/v1", api_key="the-key")
            with client:
                reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Well?"}])
        assert reply.choices[0].message.content == "It is sunny."
        assert [seen.headers["authorization"] for seen in upstream.requests] == ["Bearer the-key"]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", urlsplit(address).port), timeout=300)


def test_a_larger_limit_adds_questions():
    entries = [{"id": f"simple_{number}"} for number in range(50)]
    few, more = choose(entries, 5, 7), choose(entries, 9, 7)
    assert len(few) == 5
    assert set(few) < set(more)
    assert choose(entries, 0, 7) == [entry["id"] for entry in entries]
    assert few != choose(entries, 5, 8)


def test_what_a_question_depends_on_is_chosen_too():
    before = [{"id": f"memory_kv_prereq_{number}-student-{number}"} for number in range(3)]
    other = {"id": "memory_kv_prereq_3-finance-0"}
    question = {"id": "memory_kv_0-student-0", "depends_on": [entry["id"] for entry in before]}
    assert choose([*before, other, question], 1, 0) == [*(entry["id"] for entry in before), question["id"]]


FAILED = {"result": "Error during inference: no route to http://me:secret@host/", "traceback": "..."}


def write_run(run, results, scores, chosen):
    for name, rows in (("result", results), ("score", scores)):
        path = run / name / "promptools" / "non_live" / f"BFCL_v4_simple_python_{name}.json"
        path.parent.mkdir(parents=True)
        path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    (run / "test_case_ids_to_generate.json").write_text(json.dumps(chosen))


def test_results_are_read_and_failures_removed(tmp_path):
    turns = {"id": "c", "result": [["x"]], "input_token_count": [[3, 4], [5]], "output_token_count": [[1, 1], [1]]}
    results = [
        {"id": "a", "result": [{"f": "{}"}], "input_token_count": 10, "output_token_count": 2, "latency": 0.5},
        {"id": "b", **FAILED},
        {**turns, "latency": [[0.5, 0.5], [1]]},
        {"id": "d", "result": "Error during inference: is what the model wrote"},
        {"id": "f", "result": "Error during inference: context_length_exceeded", "traceback": "..."},
        {"id": "elsewhere", "result": ""},
        '{"id": "e", "resu',
    ]
    scores = [
        {"accuracy": 0.5, "correct_count": 3, "total_count": 5},
        {"id": "c", "error": {"error_type": "multi_turn:x"}, "valid": False},
        {"id": "d", "error": ["..."], "error_type": "ast_decoder:y", "valid": False},
    ]
    write_run(tmp_path, results, scores, {"simple_python": ["a", "b", "e"], "m": ["m_prereq_0", "c", "d", "f"]})
    answers = read_answers(tmp_path)
    assert answers == [
        BfclAnswer("a", "simple_python", True, "", "", 10, 2, 0.5),
        BfclAnswer("b", "simple_python", False, error="no route to http://***@host/"),
        BfclAnswer("e", "simple_python", False, error="no result was written"),
        BfclAnswer("c", "m", False, "multi_turn:x", "", 12, 3, 2.0),
        BfclAnswer("d", "m", False, "ast_decoder:y"),
        BfclAnswer("f", "m", False, "context_length_exceeded"),
    ]
    assert remove_failures(tmp_path) == {"a", "c", "d", "f", "elsewhere"}
    (path,) = tmp_path.glob("result/*/*/*")
    text = path.read_text()
    assert [json.loads(line)["id"] for line in text.splitlines()] == ["a", "c", "d", "f", "elsewhere"]
    assert remove_failures(tmp_path) == {"a", "c", "d", "f", "elsewhere"}
    assert path.read_text() == text
    assert remove_failures(tmp_path, overflows=True) == {"a", "c", "d", "elsewhere"}
    path.write_text(text)
    figures = summarize_answers(answers).to_dict()
    assert figures["accuracy"]["estimate"] == pytest.approx(1 / 6)
    assert figures["categories"]["m"] == {
        "estimate": 0.0,
        "low": 0.0,
        "high": pytest.approx(1 - 0.05 ** (1 / 3)),  # as none of three is right
        "questions": 3,
        "correct": 0,
        "failed": 0,
    }
    assert (figures["questions"], figures["correct"], figures["failed"]) == (6, 1, 2)
    assert figures["mistakes"] == {"m: multi_turn:x": 1, "m: ast_decoder:y": 1, "m: context_length_exceeded": 1}
    assert figures["usage"] == {"prompt_tokens": 22, "completion_tokens": 5}


def test_a_run_counts_replies_and_keeps_none_of_their_text(tmp_path):
    fixed = Call("c", "f", {}, "{}", fixes=(Fix("json", "a comma"),))
    recovered = Call("c", "f", {"city": "Paris"}, "{}", dialect="hermes")
    native = Call("c", "f", {}, "{}", dialect="native")
    with BfclRunLog(tmp_path, {"model": "m"}) as log:
        log.record(Reply(calls=(fixed,), trace=Trace(mode="prompt")))
        log.record(Reply(calls=(native,), content="a secret", trace=Trace(mode="native")))
        log.record(Reply(calls=(recovered,), trace=Trace(mode="native")))
        log.record_overflow_retry()
    text = (tmp_path / "run.jsonl").read_text()
    assert "secret" not in text
    assert "Paris" not in text
    with BfclRunLog(tmp_path, {"model": "m"}) as log:
        assert log.overflow_retries == 1
        assert log.replies == {"in native mode": 2, "in prompt mode": 1, "with a repaired call": 2}
    with pytest.raises(UsageError, match=r"model 'm', and now 'n'\. Choose another folder"):
        BfclRunLog(tmp_path, {"model": "n"})
