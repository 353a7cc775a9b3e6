"""Chat templates of models that do not exist: one for each way to write calls, with markers that nobody uses."""

from __future__ import annotations

from typing import Final

_FRAME: Final = """\
{{- bos_token }}
{%- if tools %}
{{- '<%%sys%%>Functions:\\n' }}
{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{%- endfor %}
{{- '<%%end%%>' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<%%back%%>' + message.content + '<%%end%%>' }}
{%- elif message.role == 'assistant' %}
{{- '<%%me%%>' + (message.content or '') }}
{%- if message.tool_calls %}
CALLS
{%- endif %}
{{- '<%%end%%>' }}
{%- else %}
{{- '<%%' + message.role + '%%>' + message.content + '<%%end%%>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<%%me%%>' }}{%- endif %}"""
"""Turns and tools; `CALLS` stands for the calls of a message."""

_EACH: Final = "{%- for each in message.tool_calls %}{%- set call = each.function %}"
_ITEMS: Final = "{%- for key, value in call.arguments.items() %}"
_VALUE: Final = "{{- value if value is string else value | tojson }}"

CALLS: Final = {
    "json: an object": """
EACH
{{- '<zork>{"name": "' + call.name + '", "arguments": ' + call.arguments | tojson + '}</zork>' }}
{%- endfor %}""",
    "json: a list": """
{{- '<|blip|>[' }}
EACH
{{- '{"tool": "' + call.name + '", "with": ' + call.arguments | tojson + '}' }}
{{- ', ' if not loop.last }}
{%- endfor %}
{{- ']<|blop|>' }}""",
    "json: lines": """
{{- '[[do]]\\n' }}
EACH
{{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}\\n' }}
{%- endfor %}
{{- '[[done]]' }}""",
    "json: the name as a key": """
{{- '⟦run⟧[' }}
EACH
{{- '{"' + call.name + '": ' + call.arguments | tojson + '}' }}
{{- ', ' if not loop.last }}
{%- endfor %}
{{- ']⟦ran⟧' }}""",
    "json: nothing closes it": """
{{- '<|quux|>' }}
EACH
{{- '{"name": "' + call.name + '", "arguments": ' + call.arguments | tojson + '}' }}
{{- '\\n' if not loop.last }}
{%- endfor %}""",
    "json: as the API has it, each in a wrapper": """
{{- '«all»' }}
EACH
{{- '«one»{"id": "' + each.id + '", "type": "function", "function": {"name": "' + call.name }}
{{- '", "arguments": ' + (call.arguments | tojson) | tojson + '}}«/one»' }}
{%- endfor %}
{{- '«/all»' }}""",
    "named": """
EACH
{{- '<|to|>' + call.name + '<|with|>' + call.arguments | tojson + '<|sent|>' }}
{%- endfor %}""",
    "named: in a wrapper, with an id": """
{{- '((calls))' }}
EACH
{{- '((call))' + call.name + '((id))' + each.id + '((args))' + call.arguments | tojson + '((/call))' }}
{%- endfor %}
{{- '((/calls))' }}""",
    "named: numbered, in a fence": """
EACH
{{- '<|go|>' + call.name + ':' + loop.index0 | string + '\\n```json\\n' + call.arguments | tojson + '\\n```<|gone|>' }}
{%- endfor %}""",
    "tags: an attribute": """
{{- '<grok:plan>\\n' }}
EACH
{{- '<step tool="' + call.name + '">\\n' }}
ITEMS
{{- '<with key="' + key + '">' }}
VALUE
{{- '</with>\\n' }}
{%- endfor %}
{{- '</step>\\n' }}
{%- endfor %}
{{- '</grok:plan>' }}""",
    "tags: an equals sign": """
EACH
{{- '<act>\\n<fn=' + call.name + '>\\n' }}
ITEMS
{{- '<arg=' + key + '>\\n' }}
VALUE
{{- '\\n</arg>\\n' }}
{%- endfor %}
{{- '</fn>\\n</act>' }}
{{- '\\n' if not loop.last }}
{%- endfor %}""",
    "tags: with the constants of Python": """
EACH
{{- '<act>\\n<fn=' + call.name + '>\\n' }}
ITEMS
{{- '<arg=' + key + '>' }}
{{- value | tojson if value is mapping or value is sequence and value is not string else value | string }}
{{- '</arg>\\n' }}
{%- endfor %}
{{- '</fn>\\n</act>' }}
{{- '\\n' if not loop.last }}
{%- endfor %}""",
    "nested": """
{%- macro tree(value) %}
{%- if value is mapping %}
{%- for k, v in value.items() if v is not none %}{{- '@%@<' + k + '>' + tree(v) + '@%@</' + k + '>' }}{%- endfor %}
{%- elif value is string %}
{{- value }}
{%- elif value is sequence %}
{%- for v in value %}{{- '@%@<entry>' + tree(v) + '@%@</entry>' }}{%- endfor %}
{%- else %}
{{- value | tojson }}
{%- endif %}
{%- endmacro %}
{{- '@%@<jobs>\\n' }}
EACH
{{- '@%@<job tool="' + call.name + '">' + tree(call.arguments) + '@%@</job>\\n' }}
{%- endfor %}
{{- '@%@</jobs>' }}""",
    "key_value": """
EACH
{{- '<do_it>' + call.name + '\\n' }}
ITEMS
{{- '<k>' + key + '</k>\\n<v>' }}
VALUE
{{- '</v>\\n' }}
{%- endfor %}
{{- '</do_it>' }}
{{- '\\n' if not loop.last }}
{%- endfor %}""",
    "key_value: in a wrapper": """
{{- '<|begin_all|>' }}
EACH
{{- '<|one|>' + call.name + '<|sep|>' }}
ITEMS
{{- '<|key|>' + key + '<|is|>' }}
VALUE
{{- '<|val|>' }}
{%- endfor %}
{{- '<|/one|>' }}
{%- endfor %}
{{- '<|end_all|>' }}""",
    "braces": """
{%- macro put(value) %}
{%- if value is mapping %}
{{- '{' }}{%- for k, v in value.items() %}{{- k + ':' + put(v) }}{{- ',' if not loop.last }}{%- endfor %}{{- '}' }}
{%- elif value is string %}
{{- '<escape>' + value + '<escape>' }}
{%- elif value is sequence %}
{{- '[' }}{%- for v in value %}{{- put(v) }}{{- ',' if not loop.last }}{%- endfor %}{{- ']' }}
{%- else %}
{{- value | tojson }}
{%- endif %}
{%- endmacro %}
EACH
{{- '<|say|>call:' + call.name + put(call.arguments) + '<|said|>' }}
{%- endfor %}""",
    "python": """
{{- '<|py|>[' }}
EACH
{{- call.name + '(' }}
ITEMS
{{- key + '=' + value | tojson }}
{{- ', ' if not loop.last }}
{%- endfor %}
{{- ')' }}
{{- ', ' if not loop.last }}
{%- endfor %}
{{- ']<|/py|>' }}""",
}
"""How the calls of a message are written, by what the format is like."""


def invented_template(form: str) -> str:
    """Return the template of a model whose calls have a form of `CALLS`."""
    calls = CALLS[form].replace("EACH", _EACH).replace("ITEMS", _ITEMS).replace("VALUE", _VALUE)
    return _FRAME.replace("CALLS", calls)
