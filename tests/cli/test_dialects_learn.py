"""`promptools dialects learn`, which learns from a file or a server, and `detect` and `probe`, which show it."""

import json
import tomllib

import pytest
from invented_templates import invented_template
from upstream import running

from promptools import dialects
from promptools.cli import main
from promptools.learning import learn
from promptools.modes.jinja_template import jinja_renderer

FORM = "named"
LLAMACPP = {
    "/props": {"build_info": "b11549-abc", "default_generation_settings": {}},
    "/v1/models": {"object": "list", "data": [{"id": "acme-7b", "object": "model", "owned_by": "llamacpp"}]},
}


def run(capsys, *arguments):
    status = main([str(each) for each in arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.fixture
def template(tmp_path):
    path = tmp_path / "chat_template.jinja"
    path.write_text(invented_template(FORM), encoding="utf-8")
    return path


def test_a_file_is_learned_and_saved(capsys, template, tmp_path):
    saved = tmp_path / "acme.toml"
    status, out, err = run(capsys, "dialects", "learn", template, "--save", saved)
    assert (status, err) == (
        0,
        f'saved: name it in a config as dialects = ["acme.toml"], or with --dialect-file {saved}\n',
    )
    assert tomllib.loads(saved.read_text())["name"] == "acme"
    assert saved.read_text().strip() in out
    assert "calls read back" in out
    reply = tmp_path / "reply.txt"
    reply.write_text('<|to|>get_weather<|with|>{"city": "Paris"}<|sent|>')
    status, out, _ = run(capsys, "parse", reply, "--dialect-file", saved, "--json")
    assert [(call["name"], call["dialect"]) for call in json.loads(out)["calls"]] == [("get_weather", "acme")]


def test_a_tokenizer_config_tells_the_special_tokens(capsys, tmp_path):
    config = tmp_path / "tokenizer_config.json"
    added = {"7": {"content": "<|to|>", "special": True}, "8": {"content": "plain", "special": False}}
    config.write_text(json.dumps({"chat_template": invented_template(FORM), "added_tokens_decoder": added}))
    status, out, _ = run(capsys, "dialects", "learn", config, "--json")
    found = json.loads(out)
    assert (status, tomllib.loads(found["toml"])["tier"], found["known_as"]) == (0, "S", None)


def test_a_tokenizer_config_tells_how_replies_are_parsed(capsys, tmp_path):
    calls = {"open_pattern": r"<\|to\|>(?P<name>\w+)<\|with\|>", "close": "<|sent|>", "content": "json"}
    calls["transform"] = {"function": {"name": "{name}", "arguments": "{content}"}}
    config = tmp_path / "tokenizer_config.json"
    for closer, said in (("<|sent|>", "calls are written as the config's"), ("<|over|>", "not used, and the template")):
        declared = {"fields": {"tool_calls": {**calls, "close": closer}}}
        config.write_text(json.dumps({"chat_template": invented_template(FORM), "response_template": declared}))
        status, out, _ = run(capsys, "dialects", "learn", config, "--json")
        found = json.loads(out)
        assert (status, "<|sent|>" in found["toml"], said in " ".join(found["checks"] + found["notes"])) == (
            0,
            True,
            True,
        )


def test_a_known_format_is_named(capsys, tmp_path):
    path = tmp_path / "hermes.jinja"
    path.write_text(invented_template("json: an object").replace("zork", "tool_call"), encoding="utf-8")
    assert json.loads(run(capsys, "dialects", "learn", path, "--json")[1])["known_as"] == "hermes"
    assert "the dialect 'hermes' reads what this template writes" in run(capsys, "dialects", "learn", path)[1]


def test_what_cannot_be_learned_says_why(capsys, tmp_path):
    path = tmp_path / "plain.jinja"
    path.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    status, out, err = run(capsys, "dialects", "learn", path)
    assert (status, out) == (1, "")
    assert err.startswith("promptools dialects: No table of 'learned' could be learned")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["learn"], "name the chat template"),
        (["learn", "none.jinja"], "cannot read 'none.jinja': No such file"),
        (["learn", "FILE", "--save", "FILE"], "exists, and is not changed"),
        (["learn", "FILE", "--save", "x.json"], "name a file NAME.toml"),
        (["learn", "FILE", "--save", "hermes.toml"], "there is a dialect 'hermes' already"),
        (["hermes", "--model", "m"], "are for `promptools dialects learn SOURCE`"),
    ],
)
def test_wrong_usage_is_one_line(capsys, template, arguments, problem):
    status, out, err = run(capsys, "dialects", *(template if word == "FILE" else word for word in arguments))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert problem in err


# --- servers


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("PROMPTOOLS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    with running() as upstream:
        upstream.about = LLAMACPP
        yield upstream


def test_a_server_that_renders_nothing_is_one_line(capsys, server):
    status, out, err = run(capsys, "dialects", "learn", server.url, "--model", "acme-7b")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert server.seen == [], "but requests of our own"
    rendered = [each for each in server.looks if each.path == "/apply-template"]
    assert {each.headers["authorization"] for each in rendered} == {"Bearer sk-mine"}
    server.about = {}
    status, _, err = run(capsys, "dialects", "learn", server.url)
    assert (status, "no endpoint is known" in err) == (1, True)


def test_detect_says_what_came_of_the_template(capsys, server):
    status, out, _ = run(capsys, "detect", server.url, "--model", "acme-7b", "--json")
    found = json.loads(out)
    assert (status, found["template_dialect"]) == (0, None)
    assert found["template_why"].startswith("nothing was learned from the model's chat template")
    assert found["template_why"] in run(capsys, "detect", server.url, "--model", "acme-7b")[1].replace("\n", " ")


def test_the_command_and_the_function_agree(capsys, template):
    render = jinja_renderer(template.read_text(encoding="utf-8"), special_tokens={"bos_token": ""})
    learned = learn(render, name="learned")
    assert json.loads(run(capsys, "dialects", "learn", template, "--json")[1])["toml"] == learned.toml
    assert learned.name not in dialects.names()
