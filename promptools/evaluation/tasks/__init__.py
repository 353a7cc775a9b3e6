"""Tasks: read from a file, solved several times, graded, and reported."""

from promptools.evaluation.tasks.answer_grading import boxed_integer
from promptools.evaluation.tasks.report import render_report, summarize
from promptools.evaluation.tasks.run_log import RunLog, TaskAttempt
from promptools.evaluation.tasks.task_file import Task, read_tasks
from promptools.evaluation.tasks.task_runner import Solution, Unanswered, run_tasks

__all__ = [
    "RunLog",
    "Solution",
    "Task",
    "TaskAttempt",
    "Unanswered",
    "boxed_integer",
    "read_tasks",
    "render_report",
    "run_tasks",
    "summarize",
]
