"""Chat templates of Hugging Face that are rendered here: what they rely on, and what goes wrong with them."""

import json
import os
import re
import sys

import pytest

from promptools.errors import UsageError
from promptools.modes.jinja_template import notes_on_unused, render_template

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture
def render(tmp_path):
    def rendered(source, name="chat_template.jinja", **body):
        file = tmp_path / name
        file.write_text(source, encoding="utf-8")
        return render_template(str(file), {"messages": [USER], **body})

    return rendered


def test_messages_tools_and_the_generation_prompt(render):
    source = (
        "{% for tool in tools %}{{ tool.function.name }};{% endfor %}"
        "{% for message in messages %}{{ message['role'] }}:{{ message.content }};{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    assert render(source, tools=[TOOL]) == "f;user:Hi;assistant:"


def test_white_space_of_blocks_is_left_out(render):
    assert render("{% if true %}\n  {% if true %}\nx\n  {% endif %}\n{% endif %}\ny\n") == "x\ny"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("tojson", '{"b": "é <&> 日本", "a": [1, true, null]}'),
        ("tojson(indent=2)", '{\n  "b": "é <&> 日本",\n  "a": [\n    1,\n    true,\n    null\n  ]\n}'),
        ("tojson(ensure_ascii=true)", '{"b": "\\u00e9 <&> \\u65e5\\u672c", "a": [1, true, null]}'),
        ("tojson(separators=(',', ':'))", '{"b":"é <&> 日本","a":[1,true,null]}'),
        ("tojson(sort_keys=true)", '{"a": [1, true, null], "b": "é <&> 日本"}'),
    ],
)
def test_tojson_leaves_characters_as_they_are(render, expression, text):
    value = {"b": "é <&> 日本", "a": [1, True, None]}
    assert render("{{ documents[0] | " + expression + " }}", documents=[value]) == text


def test_nothing_is_escaped_as_html(render):
    assert render("{{ messages[0].content }}", messages=[{**USER, "content": "<a> & 'b'"}]) == "<a> & 'b'"


def test_a_template_that_refuses_the_conversation(render):
    with pytest.raises(UsageError, match="the template refuses the conversation: Roles must alternate"):
        render("{{ raise_exception('Roles must alternate') }}")


def test_the_date(render):
    assert re.fullmatch(r"\d{2} \w{3} \d{4}", render("{{ strftime_now('%d %b %Y') }}"))
    assert render("{% if strftime_now is defined %}yes{% endif %}") == "yes"


def test_loop_controls(render):
    source = (
        "{% for n in [1, 2, 3, 4] %}{% if n == 2 %}{% continue %}{% endif %}"
        "{% if n == 4 %}{% break %}{% endif %}{{ n }}{% endfor %}"
    )
    assert render(source) == "13"


def test_generation_blocks_are_their_content(render):
    source = (
        "{% for m in messages %}{% if m.role == 'user' %}u{% generation %}[{{ m.content }}]{% endgeneration %}"
        "{% endif %}{% endfor %}"
    )
    assert render(source) == "u[Hi]"


def test_other_extensions_are_not_there(render):
    with pytest.raises(UsageError, match="cannot render the conversation"):
        render("{% do messages.clear() %}")


def test_template_arguments(render):
    source = "{{ enable_thinking }} {{ reasoning_effort }} {{ add_generation_prompt }} {{ missing is defined }}"
    body = {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}
    assert render(source, **body) == "False low True False"
    assert render("{{ reasoning_effort is defined }}") == "False"
    assert (
        render("{{ reasoning_effort }}", reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "x"}) == "x"
    )


def test_an_argument_does_not_replace_the_conversation(render):
    source = "{{ messages | length }} {{ tools[0].function.name }} {{ add_generation_prompt }}"
    arguments = {"messages": [], "tools": [], "add_generation_prompt": False}
    assert render(source, tools=[TOOL], chat_template_kwargs=arguments) == "1 f False"


def test_arguments_of_calls_are_objects(render):
    def calls(arguments):
        return [{**USER, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}]

    source = "{% set a = messages[0].tool_calls[0].function.arguments %}{{ a is mapping }} {{ a | tojson }}"
    assert render(source, messages=calls('{"x": 1}')) == 'True {"x": 1}'
    assert render(source, messages=calls({"x": 1})) == 'True {"x": 1}'
    assert render(source, messages=calls('{"x": ')) == 'False "{\\"x\\": "'


def test_the_conversation_itself_is_not_changed(render):
    message = {**USER, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}]}
    before = json.dumps(message)
    render("{{ messages }}", messages=[message])
    assert json.dumps(message) == before


# --- special tokens


CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "pad_token": None, "other": "x"}
TOKENS = "[{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ other is defined }}]"


def test_special_tokens_come_from_the_tokenizers_config(render, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    assert render(TOKENS) == "[|</s>||False]", "the server adds the first token"
    assert render(TOKENS, chat_template_kwargs={"bos_token": "<b>"}) == "[<b>|</s>||False]"


def test_without_the_config_they_are_empty(render):
    assert render("[{{ bos_token }}{{ eos_token }}]") == "[]"


def test_a_template_inside_the_tokenizers_config(render):
    assert render(json.dumps({**CONFIG, "chat_template": TOKENS}), "tokenizer_config.json") == "[|</s>||False]"


def test_of_several_templates_the_one_for_tools_where_there_are_tools(render):
    several = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    source = json.dumps({"chat_template": several})
    assert render(source, "tokenizer_config.json", tools=[TOOL]) == "tools"
    assert render(source, "tokenizer_config.json") == "plain"
    assert render(json.dumps({"chat_template": several[:1]}), "tokenizer_config.json", tools=[TOOL]) == "plain"


@pytest.mark.parametrize("config", [{}, {"chat_template": None}, {"chat_template": []}, {"chat_template": [{}]}, [1]])
def test_a_config_without_a_template(render, config):
    with pytest.raises(UsageError, match=r"holds no chat_template; name the \.jinja file of the model"):
        render(json.dumps(config), "tokenizer_config.json")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.jinja"])
def test_a_config_that_is_not_json(render, tmp_path, name):
    (tmp_path / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match=r"tokenizer_config.json' is not JSON"):
        render("{", name)


# --- what goes wrong


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ messages[",
        "{% for m in messages %}",
        "{{ 1 / 0 }}",
        "{{ messages[9].content.x }}",
        "{{ nothing() }}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% generation %}",
        "{% include 'other.jinja' %}",
    ],
)
def test_a_broken_template(render, source):
    with pytest.raises(UsageError, match=r"chat_template: '.*' cannot render the conversation: "):
        render(source)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(UsageError, match=r"none.jinja' cannot be read: No such file"):
        render_template(str(tmp_path / "none.jinja"), {"messages": []})


def test_a_folder_is_not_a_template(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        render_template(str(tmp_path), {"messages": []})


def test_bytes_that_are_not_text(tmp_path):
    (tmp_path / "t.jinja").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot render"):
        render_template(str(tmp_path / "t.jinja"), {"messages": []})


def test_without_jinja2(render, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2.sandbox", None)
    with pytest.raises(UsageError, match="chat_template needs Jinja2: pip install"):
        render("{{ 'not compiled before' }}")


def test_a_file_is_read_again_when_it_has_changed(tmp_path):
    file = tmp_path / "t.jinja"
    file.write_text("one", encoding="utf-8")
    assert render_template(str(file), {}) == "one"
    file.write_text("two", encoding="utf-8")
    os.utime(file, ns=(1, 1))
    assert render_template(str(file), {}) == "two"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__ }}{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__['sys'] }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ messages.append('x') }}",
        "{{ messages[0].update({'role': 'system'}) }}",
    ],
)
def test_the_sandbox_refuses(render, source):
    try:
        text = render(source)
    except UsageError:
        return
    assert text == "", "an attribute that is refused is undefined"


def test_what_is_not_used_here_is_noted():
    body = {"model": "m", "messages": [], "tools": [], "documents": [], "reasoning_effort": "low", "think": True}
    assert notes_on_unused(body) == ("not sent: think; a chat template that is rendered here has no such argument",)
    assert notes_on_unused({**body, "think": None}) == ()
