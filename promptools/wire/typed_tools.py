"""Tools that an API defines only by their type and that the client runs: a shell, a file editor, a memory.

OpenAI's and Anthropic's models know these tools. To other models they are offered as functions, with the parameters
that the API documents for a call. In Anthropic's API, calls to these tools have the same form as other calls. In the
Responses API, each tool has its own types of items; `TypedTool` converts between items and the function's arguments.

The formats are those of openai 3.57 and anthropic 2.14.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from promptools.json_values import is_array, is_object
from promptools.numbers import as_count
from promptools.schema import Tools
from promptools.wire.json_body import as_list, as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


GPT_OSS = "gpt-oss"
"""The family that was trained on `container.exec`; its models are offered a shell under that name."""
_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING, "minItems": 1}
_MILLISECONDS = {"type": "integer", "minimum": 1, "description": "Time limit in milliseconds."}


def _function(
    name: str, description: str, properties: Mapping[str, Any], required: Sequence[str], **more: Any
) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, **({"required": [*required]} if required else {})}
    return {"name": name, "description": description, "parameters": schema | {"additionalProperties": False} | more}


def _needs(parameter: str, needed: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return JSON Schema keywords that state which other parameters are required with each value of `parameter`.

    The conditions are nested: each further `if` is in the `else` of the `if` before it. An `allOf` would not work: some
    servers' grammars ignore `if`, and take an `allOf` for the whole schema.
    """
    keywords: dict[str, Any] = {}
    for value, names in reversed([*needed.items()]):
        otherwise = {"else": keywords} if keywords else {}
        keywords = {"if": {"properties": {parameter: {"const": value}}}, "then": {"required": [*names]}, **otherwise}
    return keywords


# Anthropic's Messages API: the name and the parameters of a function are those of the tool in this version.


_EDITOR = "str_replace_based_edit_tool"
_OLD_EDITOR = "str_replace_editor"


def _bash() -> dict[str, Any]:
    description = (
        "Runs a command in a bash shell that stays open from call to call, and returns its output. Pass `command`, or"
        " `restart` alone to begin again in a new shell."
    )
    properties = {
        "command": {"type": "string", "description": "The command to run."},
        "restart": {"type": "boolean", "description": "Whether to restart the shell instead."},
    }
    restarts = {"required": ["restart"], "properties": {"restart": {"const": True}}}
    return _function("bash", description, properties, (), **{"if": restarts, "else": {"required": ["command"]}})


def _editor(name: str, inserted: str, *more: str) -> dict[str, Any]:
    """Return the function for the text file editor; `inserted` names the parameter for the text to insert."""
    undo = "\n- `undo_edit`: takes back the last change of the file." if "undo_edit" in more else ""
    description = (
        "Shows and edits text files.\n"
        "- `view`: shows a file, or its lines `view_range`, or lists a folder.\n"
        "- `create`: writes `file_text` to a new file.\n"
        "- `str_replace`: replaces `old_str`, which must occur exactly once, with `new_str`.\n"
        f"- `insert`: inserts `{inserted}` after the line `insert_line`; 0 is the beginning of the file.{undo}"
    )
    properties = {
        "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", *more]},
        "path": {"type": "string", "description": "Path of the file or folder."},
        **_EDITS,
        inserted: _STRING,
    }
    needed = _needs("command", {**_EDITS_NEED, "insert": ("insert_line", inserted)})
    return _function(name, description, properties, ("command", "path"), **needed)


def _memory() -> dict[str, Any]:
    description = (
        "Keeps notes in files below /memories, beyond this conversation. Look there before you begin, and write down"
        " what later work needs.\n"
        "- `view`: shows the file `path`, or its lines `view_range`, or lists a folder.\n"
        "- `create`: writes `file_text` to the file `path`.\n"
        "- `str_replace`: replaces `old_str` with `new_str`.\n"
        "- `insert`: inserts `insert_text` after the line `insert_line`.\n"
        "- `delete`: deletes the file or folder `path`.\n"
        "- `rename`: moves `old_path` to `new_path`."
    )
    commands = ["view", "create", "str_replace", "insert", "delete", "rename"]
    properties = {
        "command": {"type": "string", "enum": commands},
        "path": {"type": "string", "description": "Path below /memories."},
        **_EDITS,
        "insert_text": _STRING,
        "old_path": _STRING,
        "new_path": _STRING,
    }
    needed = {
        "create": ("path", "file_text"),
        "str_replace": ("path", "old_str", "new_str"),
        "insert": ("path", "insert_line", "insert_text"),
        "rename": ("old_path", "new_path"),
        "view": ("path",),
        "delete": ("path",),
    }
    return _function("memory", description, properties, ("command",), **_needs("command", needed))


_EDITS = {
    "view_range": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
    "file_text": _STRING,
    "old_str": _STRING,
    "new_str": _STRING,
    "insert_line": {"type": "integer", "minimum": 0},
}
_EDITS_NEED: Mapping[str, Sequence[str]] = {"create": ("file_text",), "str_replace": ("old_str",)}
ANTHROPIC_TOOLS: Mapping[str, Mapping[str, Any]] = {
    "bash_20241022": _bash(),
    "bash_20250124": _bash(),
    "text_editor_20241022": _editor(_OLD_EDITOR, "new_str", "undo_edit"),
    "text_editor_20250124": _editor(_OLD_EDITOR, "new_str", "undo_edit"),
    "text_editor_20250429": _editor(_EDITOR, "insert_text"),
    "text_editor_20250728": _editor(_EDITOR, "insert_text"),
    "memory_20250818": _memory(),
}
"""For each Anthropic tool that the client runs, maps the tool's type to its function.

Other versions of a tool, which are not listed, may have other parameters.
"""


# OpenAI's Responses API: each tool has its own types of items for calls and for outputs.


@dataclass(frozen=True, slots=True, eq=False)
class TypedTool:
    """A tool that an API defines by its type, and the function for it; converts calls to and from the API's items."""

    kind: str
    """The tool's type; the types of its items begin with this text."""
    prefix: str
    """The prefix of the ids of call items."""
    function: Mapping[str, Any]
    to_item: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Returns the fields of a call's item, given arguments that fit the function."""
    to_arguments: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Returns the function's arguments, given a call's item."""

    def encode(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Return the fields of a call's item, or None if the arguments do not match the function's schema.

        None is returned because an item could not express such arguments.
        """
        tools = _checker(self)
        checked = tools.check(tools[0], arguments)
        return self.to_item(arguments) if checked.verified and checked.arguments is arguments else None


@cache
def _checker(tool: TypedTool) -> Tools:
    return Tools([{"type": "function", "function": {**tool.function}}])


def _given(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


# --- shell: a list of shell lines


_SHELL_LIMITS = "timeout_ms", "max_output_length"
_SHELL = _function(
    "shell",
    "Runs commands on the user's computer, one after the other, and returns their output. Each is a shell line.",
    {
        "commands": {**_STRINGS, "description": "The commands to run."},
        "timeout_ms": _MILLISECONDS,
        "max_output_length": {
            "type": "integer",
            "minimum": 1,
            "description": "The most characters of output to return.",
        },
    },
    ("commands",),
)


def _shell_fields(commands: Sequence[str], limits: Mapping[str, Any]) -> dict[str, Any]:
    action = {"commands": [*commands], **{name: as_count(limits.get(name)) for name in _SHELL_LIMITS}}
    return {"action": action, "environment": {"type": "local"}}


def _to_shell(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return _shell_fields(arguments["commands"], arguments)


def _of_shell(item: Mapping[str, Any]) -> dict[str, Any]:
    return _given(as_object(item.get("action")), "commands", *_SHELL_LIMITS)


def _outcome(output: Mapping[str, Any]) -> str:
    """Return one output of a shell call as text: what the command printed, and how it ended.

    The end is `[timed out]`, or an exit code such as `[exit code 1]`. The end is left out if the command succeeded and
    printed something.
    """
    printed = "\n".join(filter(None, (as_text(output.get(name)).removesuffix("\n") for name in ("stdout", "stderr"))))
    outcome = as_object(output.get("outcome"))
    ended = "[timed out]" if outcome.get("type") == "timeout" else ""
    if not ended and outcome.get("exit_code") is not None and (outcome["exit_code"] != 0 or not printed):
        ended = f"[exit code {outcome['exit_code']}]"
    return "\n".join(filter(None, (printed, ended)))


def shell_output_text(outputs: Any) -> str | None:
    """Return the outputs of a shell call as text for the model; None if `outputs` has another form."""
    if not is_array(outputs) or not all(
        is_object(output) and {"stdout", "stderr"} & output.keys() for output in outputs
    ):
        return None
    return "\n".join(_outcome(output) for output in outputs)


# --- local_shell: one program with its arguments


_LOCAL_OPTIONS = "env", "timeout_ms", "user", "working_directory"
_LOCAL_SHELL = _function(
    "local_shell",
    "Runs a command on the user's computer and returns its output. `command` is a program and its arguments; for a"
    ' shell line pass ["bash", "-lc", "..."].',
    {
        "command": {**_STRINGS, "description": "The command to run."},
        "working_directory": {"type": "string", "description": "The folder to start in."},
        "env": {"type": "object", "additionalProperties": _STRING, "description": "Environment variables to set."},
        "timeout_ms": _MILLISECONDS,
        "user": {"type": "string", "description": "The user to run the command as."},
    },
    ("command",),
)


def _to_local_shell(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"action": {"type": "exec", "env": {}, **_given(arguments, "command", *_LOCAL_OPTIONS)}}


def _of_local_shell(item: Mapping[str, Any]) -> dict[str, Any]:
    action = as_object(item.get("action"))
    return _given({**action, "env": action.get("env") or None}, "command", *_LOCAL_OPTIONS)


# --- shell and local_shell as `container.exec`, for gpt-oss


_SHELLS = frozenset({"bash", "sh", "/bin/bash", "/bin/sh"})
_LINE_OPTIONS = frozenset({"-lc", "-c"})


def _container_exec(*options: str) -> dict[str, Any]:
    properties = {
        "command": {**_STRINGS, "description": "The command to run."},
        "workdir": {"type": "string", "description": "The folder to start in."},
        "env": {"type": "object", "additionalProperties": _STRING, "description": "Environment variables to set."},
        "timeout": _MILLISECONDS,
    }
    return _function(
        "container.exec",
        "Runs a command in the container and returns its output. `command` is a program and its arguments; for a shell"
        ' line pass ["bash", "-lc", "..."].',
        {name: properties[name] for name in ("command", *options)},
        ("command",),
    )


def _exec_to_shell(arguments: Mapping[str, Any]) -> dict[str, Any]:
    command = arguments["command"]
    is_line = len(command) == 3 and command[0] in _SHELLS and command[1] in _LINE_OPTIONS
    return _shell_fields([command[2] if is_line else shlex.join(command)], {"timeout_ms": arguments.get("timeout")})


def _shell_to_exec(item: Mapping[str, Any]) -> dict[str, Any]:
    action = _of_shell(item)
    lines = "\n".join(as_text(command) for command in as_list(action.get("commands")))
    return {"command": ["bash", "-lc", lines], **_given({"timeout": action.get("timeout_ms")}, "timeout")}


_EXEC_OPTIONS = {"workdir": "working_directory", "env": "env", "timeout": "timeout_ms"}


def _exec_to_local_shell(arguments: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {name: arguments.get(option) for option, name in _EXEC_OPTIONS.items()}
    return _to_local_shell({"command": arguments["command"], **renamed})


def _local_shell_to_exec(item: Mapping[str, Any]) -> dict[str, Any]:
    action = _of_local_shell(item)
    renamed = {option: action.get(name) for option, name in _EXEC_OPTIONS.items()}
    return _given({"command": action.get("command"), **renamed}, "command", *_EXEC_OPTIONS)


# --- apply_patch: a change of one file


_APPLY_PATCH = _function(
    "apply_patch",
    "Creates, updates or deletes a file.\n"
    "- `create_file`: `diff` is the whole file, with a `+` before each line.\n"
    "- `update_file`: `diff` has the changed places. Each begins with a line `@@`, which may name the function or class"
    " around it; then come about three lines of context, the lines to remove and to add, and three lines of context"
    " again, with a space, `-` or `+` before each.\n"
    "- `delete_file`: takes no `diff`.",
    {
        "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
        "path": {"type": "string", "description": "Path of the file, relative to the root of the workspace."},
        "diff": {"type": "string", "description": "The changes, as lines that begin with a space, `-` or `+`."},
    },
    ("type", "path"),
    **_needs("type", {"create_file": ("diff",), "update_file": ("diff",)}),
)


def _to_patch(arguments: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("type", "path") if arguments["type"] == "delete_file" else ("type", "path", "diff")
    return {"operation": _given(arguments, *fields)}


def _of_patch(item: Mapping[str, Any]) -> dict[str, Any]:
    return _given(as_object(item.get("operation")), "type", "path", "diff")


_PLAIN = {
    "shell": TypedTool("shell", "sh", _SHELL, _to_shell, _of_shell),
    "local_shell": TypedTool("local_shell", "lsh", _LOCAL_SHELL, _to_local_shell, _of_local_shell),
    "apply_patch": TypedTool("apply_patch", "apc", _APPLY_PATCH, _to_patch, _of_patch),
}
_TRAINED = _PLAIN | {
    "shell": TypedTool("shell", "sh", _container_exec("timeout"), _exec_to_shell, _shell_to_exec),
    "local_shell": TypedTool(
        "local_shell", "lsh", _container_exec(*_EXEC_OPTIONS), _exec_to_local_shell, _local_shell_to_exec
    ),
}


def openai_tools(family: str | None) -> Mapping[str, TypedTool]:
    """Return the tools of the Responses API that the client runs, by type.

    Each tool has the function that suits a model of `family`.
    """
    return _TRAINED if family == GPT_OSS else _PLAIN
