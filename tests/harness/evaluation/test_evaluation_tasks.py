"""Tasks of a file: read, attempted several times, graded, logged and reported."""

import json
import threading
from dataclasses import asdict

import pytest
from counted import functions_called

from promptools.errors import UsageError
from promptools.harness.evaluation.tasks import (
    RunLog,
    Solution,
    Task,
    TaskAttempt,
    Unanswered,
    boxed_integer,
    read_tasks,
    render_report,
    run_tasks,
    summarize,
)

TASKS = [Task("a", "1+1?", 2), Task("b", "2+2?", 4), Task("c", "3+3?", 6)]
SETTINGS = {"model": "m", "request": {"temperature": 1}}


# --- grading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"So \boxed{204}.", 204),
        (r"First \boxed{1}, then \boxed{2}. It has 3 parts.", 2),
        (r"\framebox{7} and 9", 7),
        (r"\boxed{\textbf{(A) }042}", 42),
        (r"\boxed{x = 5 \text{ or } 6}", 6),
        (r"\boxed{1{,}024}", 1024),
        (r"\boxed{1,024,000}", 1024000),
        (r"\boxed{12\,345}", 12345),
        (r"\boxed{\$ 12\} }", 12),
        (r"\boxed {8}", 8),
        (r"\boxed{-3}", -3),
        (r"\boxed{−3}", -3),
        (r"\boxed{10-3}", 3),
        (r"\boxed{70.0}", 70),
        (r"\boxed{70.5}", None),
        (r"\boxed{none} of 12", 12),
        (r"\boxed{11} but \boxed{12", 11),
        (r"outer \boxed{1 + \boxed{2}}", 2),
        ("The answer is 70.", 70),
        ("**Answer:** 1,2,3", 3),
        ("no number", None),
        ("", None),
        ("٣", None),
        ("1" * 2000, None),
    ],
)
def test_answers(text, answer):
    assert boxed_integer(text) == answer


@pytest.mark.parametrize("piece", ["\\boxed{", "}", "1,", "1{,}", "\\boxed{1}", "{", "-", "1."])
def test_grading_costs_as_much_as_the_text_is_long(piece):
    assert functions_called(lambda: boxed_integer(piece * 4000)) < 2.2 * functions_called(
        lambda: boxed_integer(piece * 2000)
    )


# --- files -----------------------------------------------------------------------------------------------------------


def test_reading_tasks(tmp_path):
    (tmp_path / "one").write_text(
        '\ufeff{"question": "q", "answer": "070"}\n\n{"question": "r", "answer": 3, "id": 7}\n'
    )
    (tmp_path / "two").write_text('{"question": "s", "answer": -1, "more": []}')
    tasks = read_tasks(tmp_path / "one", tmp_path / "two")
    assert [(task.question, task.answer) for task in tasks] == [("q", 70), ("r", 3), ("s", -1)]
    assert tasks[1].id == "7"
    assert len(tasks[0].id) == 12
    assert tasks[0] == read_tasks(tmp_path / "one")[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no tasks"),
        ("x", "line 1: not valid JSON"),
        ("[]", "line 1: not an object"),
        ('{"question": " ", "answer": 1}', "line 1: 'question'"),
        ('{"question": "q"}', "line 1: 'answer' is None"),
        ('{"question": "q", "answer": true}', "line 1: 'answer' is True"),
        ('{"question": "q", "answer": "1/2"}', "line 1: 'answer' is '1/2'"),
        ('{"question": "q", "answer": 1}\n{"question": "q", "answer": 2}', "line 2: there is another task"),
    ],
)
def test_files_that_are_wrong(tmp_path, text, problem):
    (tmp_path / "tasks").write_text(text)
    with pytest.raises(UsageError, match=problem):
        read_tasks(tmp_path / "tasks")
    with pytest.raises(UsageError, match="cannot read"):
        read_tasks(tmp_path / "none")


# --- runs ------------------------------------------------------------------------------------------------------------


class Solver:
    """Knows the answers, but for what `wrong` and `broken` name."""

    def __init__(self, wrong=(), broken=()):
        self.wrong, self.broken, self.asked = wrong, broken, []

    def __call__(self, task, repeat):
        question = task.question
        self.asked.append((question, repeat))
        if (question, repeat) in self.broken:
            raise ConnectionError("no route to http://me:secret@host/")
        right = 2 * int(question[0])
        answer = right + ((question, repeat) in self.wrong)
        return Solution(f"\\boxed{{{answer}}}", {"prompt_tokens": 10, "completion_tokens": 5, "details": {"x": 1}})


def test_a_run_is_graded_and_logged(tmp_path):
    shown = []
    with RunLog(tmp_path / "sub" / "log", SETTINGS) as log:
        attempts = run_tasks(
            TASKS, Solver(wrong=[("2+2?", 1)]), log, repeats=2, workers=3, progress=lambda *seen: shown.append(seen[1:])
        )
    assert [(attempt.task, attempt.repeat, attempt.answer, attempt.correct) for attempt in attempts] == [
        ("a", 0, 2, True), ("a", 1, 2, True), ("b", 0, 4, True), ("b", 1, 5, False),
        ("c", 0, 6, True), ("c", 1, 6, True),
    ]  # fmt: skip
    assert shown == [(n, 6) for n in range(1, 7)]
    first, *lines = map(json.loads, (tmp_path / "sub" / "log").read_text().splitlines())
    assert first == {"settings": SETTINGS}
    assert sorted(map(json.dumps, lines)) == sorted(json.dumps(asdict(attempt)) for attempt in attempts)
    assert attempts[0].usage == {"prompt_tokens": 10, "completion_tokens": 5}


def test_a_run_continues_where_it_ended(tmp_path):
    path = tmp_path / "log"
    with RunLog(path, SETTINGS) as log:
        first = run_tasks(TASKS[:2], Solver(broken=[("1+1?", 0)]), log)
    assert first[0].error == "ConnectionError: no route to http://***@host/"
    solver = Solver()
    with RunLog(path, SETTINGS) as log:
        attempts = run_tasks(TASKS, solver, log, repeats=2)
    assert sorted(solver.asked) == [("1+1?", 0), ("1+1?", 1), ("2+2?", 1), ("3+3?", 0), ("3+3?", 1)]
    assert all(attempt.correct for attempt in attempts)
    with RunLog(path, SETTINGS) as log:
        assert run_tasks(TASKS, None, log, repeats=2) == attempts


def test_no_answer_is_a_result_and_is_not_asked_for_again(tmp_path):
    def solve(task, repeat):
        raise Unanswered("after 50 replies", {"completion_tokens": 9})

    with RunLog(tmp_path / "log", SETTINGS) as log:
        (made,) = run_tasks(TASKS[:1], solve, log)
    assert (made.correct, made.answer, made.error, made.ended) == (False, None, "", "after 50 replies")
    assert made.usage == {"completion_tokens": 9}
    with RunLog(tmp_path / "log", SETTINGS) as log:
        assert run_tasks(TASKS[:1], Solver(), log) == [made]


def test_a_line_that_was_cut_off_is_made_again(tmp_path):
    path = tmp_path / "log"
    with RunLog(path, SETTINGS) as log:
        run_tasks(TASKS, Solver(), log)
    path.write_text(path.read_text()[:-20])
    solver = Solver()
    with RunLog(path, SETTINGS) as log:
        run_tasks(TASKS, solver, log)
    assert solver.asked == [("3+3?", 0)]
    with RunLog(path, SETTINGS) as log:
        assert len(log.attempts) == 3


def test_the_log_of_another_run_is_refused(tmp_path):
    RunLog(tmp_path / "log", SETTINGS).close()
    with pytest.raises(UsageError, match="model 'm', and now 'n'"):
        RunLog(tmp_path / "log", {**SETTINGS, "model": "n"})
    (tmp_path / "text").write_text("keep me\n")
    with pytest.raises(UsageError, match="is not the log of a run"):
        RunLog(tmp_path / "text", SETTINGS)
    assert (tmp_path / "text").read_text() == "keep me\n"
    with pytest.raises(UsageError, match="cannot"):
        RunLog(tmp_path, SETTINGS)


def test_workers_work_at_the_same_time(tmp_path):
    together = threading.Barrier(3, timeout=300)

    def solve(task, repeat):
        together.wait()
        return Solution("2")

    with RunLog(tmp_path / "log", SETTINGS) as log:
        assert not any(attempt.error for attempt in run_tasks(TASKS, solve, log, workers=3))


def test_an_interrupt_keeps_what_is_under_way_and_starts_nothing_else(tmp_path):
    interrupted, solver = threading.Event(), Solver()

    def solve(task, repeat):
        assert task.question == "1+1?" or interrupted.wait(300)
        return solver(task, repeat)

    def interrupt(attempt, done, total):
        interrupted.set()
        raise KeyboardInterrupt

    tasks = [*TASKS[:2], *(Task(f"more{n}", f"{n}+{n}?", 2 * n) for n in range(3, 9))]
    with RunLog(tmp_path / "log", SETTINGS) as log:
        log.record(TaskAttempt("b", 0, error="APIConnectionError: an earlier run"))
        with pytest.raises(KeyboardInterrupt):
            run_tasks(tasks, solve, log, workers=2, progress=interrupt)
        assert len(solver.asked) == 2
    with RunLog(tmp_path / "log", SETTINGS) as log:
        assert log.is_done("a", 0)
        assert log.is_done("b", 0)  # the attempt that failed in an earlier run was made again
        assert len(log.attempts) == 2


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"workers": 0}])
def test_numbers_of_attempts(tmp_path, wrong):
    with RunLog(tmp_path / "log", SETTINGS) as log, pytest.raises(UsageError, match="at least 1"):
        run_tasks(TASKS, Solver(), log, **wrong)


# --- reports ---------------------------------------------------------------------------------------------------------


def attempt(task, repeat, answer, *, correct, error="", tokens=10):
    usage = {} if error else {"completion_tokens": tokens}
    return TaskAttempt(task, repeat, "", answer, 2, correct, usage, 1.5, error)


def test_figures_and_page():
    attempts = [
        attempt("a", 0, 2, correct=True),
        attempt("a", 1, 2, correct=True),
        attempt("b|c", 0, 3, correct=False),
        attempt("b|c", 1, 2, correct=True, tokens=30),
        attempt("d", 0, None, correct=False),
        attempt("d", 1, None, correct=False, error="Timeout: x\ny"),
    ]
    summary = summarize(attempts)
    assert summary.accuracy.estimate == 0.5
    assert summary.accuracy.low == 0
    assert summary.accuracy.high == 1
    figures = summary.to_dict()
    assert figures.pop("accuracy")["estimate"] == 0.5
    assert figures == {
        "tasks": 3,
        "attempts": 6,
        "solved": 2,
        "failed": 1,
        "unanswered": 1,
        "usage": {"completion_tokens": 70},
        "seconds": 9.0,
    }
    page = render_report("AIME: m", summary, SETTINGS)
    for line in (
        "# AIME: m",
        "| correct, mean of tasks, with its 95 % interval | 50.0 % [0.0, 100.0] |",
        "| completion_tokens, in all and per attempt | 70, 11.7 |",
        '| request | {"temperature": 1} |',
        "| a | 2 | 2/2 | 2 × 2 |",
        "| b\\|c | 2 | 1/2 | 3, 2 |",
        "| d | 2 | 0/2 | none, error |",
        "| Timeout: x y | 1 |",
    ):
        assert line in page.splitlines(), line
