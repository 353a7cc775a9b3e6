"""What the library logs: nothing by itself, what was healed at INFO, and as docs/reference/logging.md says."""

import ast
import logging
import re
from pathlib import Path

from upstream import Answer, completion, running

import promptools
from promptools import OpenAI
from promptools.log import log
from promptools.profiles import Config

ROOT = Path(promptools.__file__).parent
PAGE = ROOT.parent / "docs" / "reference" / "logging.md"
REFUSED = Answer(500, (b'{"error": {"message": "Unexpected token 1 while expecting start token 200006"}}',))
FENCED = '```json\n{"tool": "ping", "arguments": {}}\n```'
LEVELS = {"debug", "info", "warning", "error", "exception", "log"}
TOOLS = [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}]


def healed_call(**settings):
    with running() as server:
        server.play(REFUSED, completion(FENCED))
        with OpenAI(base_url=server.url, api_key="none", config=Config(), detect=False, **settings) as client:
            reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}], tools=TOOLS)
    assert reply.choices[0].message.tool_calls[0].function.name == "ping"


def test_a_healed_call_prints_nothing(monkeypatch, capsys):
    """As in a process that does not configure logging: only Python's handler of last resort is there."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    healed_call()
    log.warning("an operator must act")
    log.getChild("exchanges").warning("so must this")
    logging.getLogger("another").warning("printed")
    assert capsys.readouterr() == ("", "printed\n")


def test_a_healed_call_is_told_once_at_info(caplog):
    caplog.set_level(logging.DEBUG, "promptools")
    healed_call()
    (record,) = [record for record in caplog.records if record.name.startswith("promptools")]
    assert record.levelname == "INFO"
    assert record.getMessage().startswith("send 1 in native mode failed: ")


def logged():
    """Every call of the logger in the package: its level, and the beginning of its message."""
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "log." not in source:  # to parse all modules takes two seconds
            continue
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "log"
                and node.func.attr in LEVELS
            ):
                text = next((each for each in node.args if isinstance(each, ast.Constant)), None)
                assert text is not None, f"{path}, line {node.lineno}: a message is a constant"
                yield node.func.attr, text.value, path.relative_to(ROOT)


def test_every_message_is_in_the_table():
    rows = dict(re.findall(r"^\| ([A-Z]+) \| (.*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    rows = {level.lower(): re.sub(r"\b[A-Z]+\b", "%", row) for level, row in rows.items()}
    rows["exception"] = rows["error"]
    calls = [*logged()]
    assert len(calls) > 12
    for level, message, path in calls:
        if message in {"%s", "log"}:
            continue
        words = re.split(r"[:;,(]|%[rsd]", message)[0].strip()
        expected = rows if level == "log" else {level: rows[level]}
        assert any(words in row for row in expected.values()), f"{path}: {message!r} at {level}"


def test_no_message_names_the_logger():
    assert [message for _, message, _ in logged() if message.startswith("promptools")] == []
