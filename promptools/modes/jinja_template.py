"""Render a model's Jinja chat template in promptools, for servers that cannot render it.

The template runs in Jinja2's sandbox, with the features that templates from Hugging Face rely on: a `tojson` that
leaves every character unchanged, `raise_exception`, `strftime_now`, `break` and `continue`, and `{% generation %}`,
which marks the assistant's text for training and has no effect in promptools.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from inspect import isgenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from promptools.errors import UsageError, clip
from promptools.json_values import copy_json, is_array, is_object, try_json
from promptools.wire.chat_template import TEMPLATE_KEYS
from promptools.wire.json_body import as_list, as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import jinja2
    from jinja2 import nodes
    from jinja2.parser import Parser


TOKENIZER_CONFIG = "tokenizer_config.json"
"""The file in a model's repository that names its special tokens, and may contain its chat template."""

DECLARATIONS = ("response_template", "response_schema")
"""Keys of `tokenizer_config.json` that say how replies are parsed.

Transformers 5.13 and later read the first key, earlier versions the second.
"""


_USED = frozenset(("model", "messages", "tools", "documents", "reasoning_effort", "chat_template_kwargs"))
"""Request parameters that `notes_on_unused` does not report."""


class _Template(NamedTuple):
    template: jinja2.Template
    special_tokens: dict[str, str]


def render_template(path: str, body: Mapping[str, Any]) -> str:
    """Render a Chat Completions body's conversation with the template at `path`, up to where the reply begins.

    A `tokenizer_config.json` next to the template, or at `path` itself, supplies the special tokens. The `bos_token` is
    left out, since the server adds it. Raises UsageError for a file that is not a template, for a template that rejects
    the conversation, and if Jinja2 is not installed.
    """
    file = Path(path).expanduser()
    try:
        template, special = _load(str(file), file.stat().st_mtime_ns, bool(body.get("tools")))
        return template.render({
            **special,
            "documents": body.get("documents"),
            "add_generation_prompt": True,
            **_effort(body),
            **as_object(body.get("chat_template_kwargs")),
            "messages": [_with_objects(as_object(message)) for message in as_list(body.get("messages"))],
            "tools": body.get("tools"),
        })  # fmt: skip
    except OSError as error:
        raise UsageError(f"chat_template: {path!r} cannot be read: {error.strerror}") from error
    except UsageError:
        raise
    except Exception as error:  # a template is code of others, which may raise anything
        raise UsageError(f"chat_template: {path!r} cannot render the conversation: {clip(str(error))}") from error


def jinja_renderer(template: str, *, special_tokens: Mapping[str, str] | None = None) -> Callable[..., str]:
    """Return a function that renders conversations with a chat template: `render(messages, tools, **options)`.

    `template` is the text of the template. `special_tokens` maps names in it, such as `bos_token`, to texts. The steps
    and the text of a rendering are limited. Raises UsageError for an invalid template, and if Jinja2 is not installed.
    The returned function raises UsageError for any failure of the template.
    """
    environment = _environment(bounded=True)
    from promptools.modes.bounded_template import bounds, check_size  # needs Jinja2, too

    try:
        compiled = environment.from_string(template)
    except Exception as error:  # not only TemplateSyntaxError: the compiler has limits of its own
        raise UsageError(f"The chat template is not valid: {clip(str(error))}") from error

    def render(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None, **options: Any) -> str:
        try:
            values: dict[str, Any] = {
                "functions": json.dumps(tools),  # Firefunction's template asks for both
                "datetime": "",
                **(special_tokens or {}),
                **options,
                "messages": copy_json(messages),
                "tools": copy_json(tools),
            }
            pieces: list[str] = []
            size = 0
            with bounds():
                for piece in compiled.generate(values):
                    size += len(piece)
                    check_size(size)
                    pieces.append(piece)
            return "".join(pieces)
        except UsageError:
            raise
        except Exception as error:  # a template is code of others, which may raise anything
            raise UsageError(f"The chat template cannot render the conversation: {clip(str(error))}") from error

    return render


def notes_on_unused(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note for the trace on those request parameters that `render_template` does not use."""
    unused = [key for key in TEMPLATE_KEYS if key not in _USED and body.get(key) is not None]
    if not unused:
        return ()
    return (f"not sent: {', '.join(unused)}; a chat template that is rendered here has no such argument",)


def _effort(body: Mapping[str, Any]) -> dict[str, Any]:
    effort = body.get("reasoning_effort")
    return {} if effort is None else {"reasoning_effort": effort}


def _with_objects(message: dict[str, Any]) -> dict[str, Any]:
    """Copy a message with the arguments of its calls as objects, because templates format the arguments themselves."""
    calls = [as_object(call) for call in as_list(message.get("tool_calls"))]
    if not calls:
        return message
    functions = [as_object(call.get("function")) for call in calls]
    # Qwen3-Coder's template fails on arguments that are text (Qwen3-Coder#444).
    objects = [{**function, "arguments": _object(function.get("arguments"))} for function in functions]
    return {
        **message,
        "tool_calls": [{**call, "function": function} for call, function in zip(calls, objects, strict=True)],
    }


def _object(arguments: Any) -> Any:
    return try_json(arguments, arguments) if isinstance(arguments, str) else arguments


@lru_cache(maxsize=8)
def _load(path: str, _changed_at: int, with_tools: bool) -> _Template:
    """Compile the template in a file. The compiled template is cached until the file changes."""
    file = read_template(Path(path), with_tools=with_tools)
    return _Template(_environment().from_string(file.source), {**file.tokens, "bos_token": ""})


class TemplateFile(NamedTuple):
    """Holds a chat template and the tokenizer facts that are stored with it."""

    source: str
    tokens: dict[str, str]
    """The special tokens that the template knows by name, such as `eos_token`."""
    special: frozenset[str]
    """The texts of all special tokens."""
    declared: Mapping[str, Any]
    """Those entries of `tokenizer_config.json` whose keys are in `DECLARATIONS`; they say how replies are parsed."""


def read_template(file: Path, *, with_tools: bool = True) -> TemplateFile:
    """Read the chat template in a Jinja file, or in a JSON file such as `tokenizer_config.json`.

    For a Jinja file, the `tokenizer_config.json` next to it is read too. Raises UsageError for a JSON file without a
    template, and OSError if a file cannot be read.
    """
    source = file.read_text(encoding="utf-8")
    config: dict[str, Any] = {}
    if file.suffix == ".json":
        config = _parse_config(file, source)
        source = _template_of(config, file, with_tools=with_tools)
    elif (beside := file.with_name(TOKENIZER_CONFIG)).is_file():
        config = _parse_config(beside, beside.read_text(encoding="utf-8"))
    tokens = {key: _token(value) for key, value in config.items() if key.endswith("_token")}
    added = map(as_object, as_object(config.get("added_tokens_decoder")).values())
    special = {*tokens.values(), *(_token(token) for token in added if token.get("special") is True)}
    declared = {key: config[key] for key in DECLARATIONS if config.get(key) is not None}
    return TemplateFile(source, tokens, frozenset(filter(None, special)), declared)


def _parse_config(file: Path, source: str) -> dict[str, Any]:
    try:
        config: Any = json.loads(source)
    except ValueError as error:
        raise UsageError(f"chat_template: {str(file)!r} is not JSON: {error}") from error
    return as_object(config)


def _template_of(config: dict[str, Any], file: Path, *, with_tools: bool) -> str:
    """Return the template in a tokenizer's config.

    If there are several, return the one for tools. If there is none for tools, or `with_tools` is false, return the
    default one.
    """
    template = config.get("chat_template")
    if is_array(template):
        named = {as_text(as_object(entry).get("name")): as_object(entry).get("template") for entry in template}
        template = (named.get("tool_use") if with_tools else None) or named.get("default")
    if not isinstance(template, str):
        raise UsageError(f"chat_template: {str(file)!r} holds no chat_template; name the .jinja file of the model")
    return template


def _token(value: Any) -> str:
    return as_text(value.get("content")) if is_object(value) else as_text(value)


def _environment(*, bounded: bool = False) -> jinja2.Environment:
    """Return the sandbox for templates.

    If `bounded` is true, the sandbox limits steps and sizes, because the user did not choose the template.
    """
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # an extra

        from promptools.modes.bounded_template import BoundedEnvironment
    except ImportError as error:
        # not `install_command`: clients of a proxy may get this error
        raise UsageError("chat_template needs Jinja2: pip install 'promptools-compat[raw]'") from error
    kind: type[jinja2.Environment] = BoundedEnvironment if bounded else ImmutableSandboxedEnvironment
    environment = kind(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation_extension()]
    )
    environment.filters["tojson"] = _to_json
    helpers: dict[str, Any] = {"raise_exception": _refuse, "strftime_now": _now}
    environment.globals.update(helpers)
    return environment


def _to_json(value: Any, indent: int | None = None, *, ensure_ascii: bool = False, **options: Any) -> str:
    if isgenerator(value):  # the result of a filter such as `map`
        value = list(value)
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, **options)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _refuse(message: str) -> NoReturn:
    raise UsageError(f"chat_template: the template refuses the conversation: {clip(message)}")


@lru_cache(maxsize=1)
def _generation_extension() -> type[Any]:
    from jinja2.ext import Extension

    class Generation(Extension):
        """The block `{% generation %}`, which outputs its content unchanged."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja2 declares it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation
