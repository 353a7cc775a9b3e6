"""The log of a batch: what is read again after an end at any byte, and what is refused."""

import json
from pathlib import Path

import pytest

from promptools.batch.answering import BatchAnswer, LineProblem
from promptools.batch.batch_job import BatchLog
from promptools.errors import PromptoolsError, UsageError

SETTINGS = {"version": 1, "input": "abc", "model": None}
ANSWERS = [
    BatchAnswer(1, {"custom_id": "ä\u2028\ud800", "response": {"status_code": 200}}),
    BatchAnswer(7, {"custom_id": "b"}, LineProblem(7, "b", "http_error", "no", "correct it", 400)),
    BatchAnswer(9000, {"custom_id": "c"}),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.part"


@pytest.fixture
def written(path):
    with BatchLog(path, SETTINGS) as log:
        for answer in ANSWERS:
            log.add(answer)
    return path.read_bytes()


def test_answers_are_read_again(path, written):
    with BatchLog(path, SETTINGS) as log:
        assert list(log.answers()) == ANSWERS
        assert [line for line in range(9002) if log.has(line)] == [1, 7, 9000]
    assert path.read_bytes() == written


def test_an_end_at_any_byte_costs_the_line_that_was_cut(path, written):
    ends = [at + 1 for at, byte in enumerate(written) if byte == ord("\n")]
    for size in range(len(written)):
        path.write_bytes(written[:size])
        whole = sum(end <= size for end in ends) - 1
        with BatchLog(path, SETTINGS) as log:
            assert list(log.answers()) == ANSWERS[: max(0, whole)], size
            for answer in ANSWERS[max(0, whole) :]:
                log.add(answer)
        assert path.read_bytes() == written


def test_a_damaged_line_costs_itself(path, written):
    lines = written.split(b"\n")
    path.write_bytes(b"\n".join([lines[0], b"\0" * 50, *lines[2:]]))
    with BatchLog(path, SETTINGS) as log:
        assert list(log.answers()) == ANSWERS[1:]
        assert not log.has(1)


def test_a_log_of_another_batch(path, written):
    with pytest.raises(UsageError, match="input and model changed since"):
        BatchLog(path, {**SETTINGS, "input": "other", "model": "m"})
    assert path.read_bytes() == written


@pytest.mark.parametrize("content", ["my notes", "my notes\n", '{"key": 1}\n', "{}\n{"])
def test_another_file_is_not_touched(path, content):
    path.write_text(content)
    with pytest.raises(UsageError, match="is not a batch log"):
        BatchLog(path, SETTINGS)
    assert path.read_text() == content


def test_one_process_at_a_time(path):
    with BatchLog(path, SETTINGS), pytest.raises(UsageError, match="another process is writing"):
        BatchLog(path, SETTINGS)
    BatchLog(path, SETTINGS).close()


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(UsageError, match="No such file or directory"):
        BatchLog(tmp_path / "missing" / "log", SETTINGS)


def test_rows_are_json_in_one_line_each(written):
    rows = [json.loads(line) for line in written.splitlines()]
    assert rows[0] == {"settings": SETTINGS}
    assert [row["line"] for row in rows[1:]] == [1, 7, 9000]


def test_a_full_device():
    with pytest.raises(PromptoolsError, match="No space left on device"):
        BatchLog(Path("/dev/full"), SETTINGS)
