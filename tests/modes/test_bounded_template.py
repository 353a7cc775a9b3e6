"""A chat template of a model that nobody chose: it renders, or it is an error, and it ends soon."""

from __future__ import annotations

import pytest

from promptools import UsageError
from promptools.modes.jinja_template import jinja_renderer

ASK = [{"role": "user", "content": "Hello"}]
HOSTILE = {  # N: 9999 numbers
    "nested loops": "{% for a in N %}{% for b in N %}{% endfor %}{% endfor %}",
    "a loop whose items are left out": "{% for a in N %}{% for b in N if false %}{% endfor %}{% endfor %}",
    "a macro that calls itself twice": "{% macro m(n) %}{{ m(n - 1) ~ m(n - 1) if n }}{% endmacro %}{{ m(99) }}",
    "a macro without an end": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "text times a number": "{{ 'x' * 10 ** 9 }}",
    "a number times text": "{% set n = 999999999 %}{{ n * 'x' }}",
    "a power": "{% set n = 99999999 %}{{ n ** n }}",
    "text that doubles with ~": "{% set s = namespace(x='xx') %}{% for a in N %}{% set s.x = s.x ~ s.x %}{% endfor %}",
    "text that doubles with +": "{% set s = namespace(x='xx') %}{% for a in N %}{% set s.x = s.x + s.x %}{% endfor %}",
    "a list that doubles": "{% set s = namespace(x=[1]) %}{% for a in N %}{% set s.x = s.x + s.x %}{% endfor %}",
    "a filter with a number": "{{ 'x' | center(999999999) }}",
    "a method with a number": "{% set n = 999999999 %}{{ 'x'.ljust(n) }}",
    "a format with a number": "{% set n = 999999999 %}{{ '%*d' % (n, 1) }}",
    "filters in a loop": "{% for a in N %}{% set x = range(99999) | list %}{% endfor %}",
    "much text": "{% for a in N %}{{ 'x' * 9999 }}{% endfor %}",
    "a way out of the sandbox": "{{ messages.__class__.__mro__[1].__subclasses__() }}",
}
FITTING = {
    "{% for m in messages %}{{ m.role ~ ': ' ~ m.content }}{% endfor %}": "user: Hello",
    "{% set l = [] %}{% for m in messages %}{% set _ = l.append(m.role) %}{% endfor %}{{ l | join }}": "user",
    "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].content) }}": "<Hello>",
    "{% for m in messages if m.role == 'tool' %}{{ m.role }}{% else %}none{% endfor %}": "none",
    "{{ messages | map(attribute='role') | tojson }}": '["user"]',
    "{{ bos }}{{ '%s %d' % ('a', 2) }}{{ 3 * '-' }}{{ add_generation_prompt }}": "<s>a 2---True",
    "{% call(x) f() %}{% endcall %}{% macro f() %}{{ 1 }}{% endmacro %}": None,
    "{{ functions }}": "null",
}
"""Templates, and what they render; None: they are refused."""


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_template_is_an_error(kind):
    with pytest.raises(UsageError, match="chat template"):
        jinja_renderer(HOSTILE[kind].replace("N", "range(9999)"))(ASK)


@pytest.mark.parametrize("template", FITTING)
def test_what_templates_do_works(template):
    render = jinja_renderer(template, special_tokens={"bos": "<s>"})
    wanted = FITTING[template]
    if wanted is None:
        with pytest.raises(UsageError, match="cannot render the conversation"):
            render(ASK)
    else:
        assert render(ASK, add_generation_prompt=True) == wanted


def test_what_is_not_a_template_is_an_error():
    with pytest.raises(UsageError, match="The chat template is not valid: "):
        jinja_renderer("{% for %}")


def test_a_template_changes_only_its_own_copy():
    messages = [{"role": "user", "content": "Hello", "parts": ["a"]}]
    jinja_renderer("{{ messages[0].parts.append('b') }}")(messages)
    assert messages[0]["parts"] == ["a"]
