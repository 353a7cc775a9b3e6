"""The table of failures against the texts that servers really send."""

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from promptools.fallback import (
    COUNTED_KINDS,
    LASTING_KINDS,
    REFUSAL_KINDS,
    REMEDIES,
    RULES,
    classify,
    find_model_text,
    match_rule,
    overflow,
    read_overflow,
    rules,
)
from promptools.fallback.rules import (
    SEARCHED_HEAD,
    SEARCHED_TAIL,
    Adaptation,
    FailureKind,
    RetryAction,
    refused_parameters,
)

OVERFLOWS = tomllib.loads((Path(__file__).parent / "overflow.toml").read_text(encoding="utf-8"))["said"]
SEEN = [
    ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "no_native_tools"),
    ('tool_choice="required" requires --tool-call-parser to be set', "no_native_tools"),
    ('tool_choice=function "get_weather" requires --tool-call-parser to be set', "no_native_tools"),
    ("registry.ollama.ai/library/Qwen3.5:0.8b does not support tools", "no_native_tools"),
    ("tools param requires --jinja flag", "no_native_tools"),
    ("Unsupported param: tools", "no_native_tools"),
    ("Received tools but model does not support", "no_native_tools"),
    ("litellm.UnsupportedParamsError: Function calling is not supported by oobabooga.", "no_native_tools"),
    ('openai_harmony.HarmonyError: unexpected tokens remaining in message header: ["commentary"]', "harmony"),
    ('unexpected tokens remaining in message header: Some("to=functions.web-browsing")', "harmony"),
    ("Unexpected token 173781 while expecting start token 200006", "harmony"),
    ("Unknown role: assistantassistant", "harmony"),
    ("channel marker present but no channel value found in header", "harmony"),
    ("HarmonyError: message header did not contain a role", "harmony"),
    ("message header did not contain a role", "harmony"),
    ("could not decode header", "harmony"),
    ("Expected 2 output messages (reasoning and final), but got 7.", "harmony"),
    ("Tool call in Chat Completion API is not supported for gpt-oss yet. Please use Responses API", "harmony"),
    ("NotImplementedError: structure_info not used with HarmonyParser", "harmony"),
    ("Unexpected EOS while waiting for message header to complete", "harmony"),
    ("error parsing tool call: raw='ls -R\\n', err=invalid character 'l' looking for beginning", "server_parser"),
    ("Failed to parse input at pos 12: </tool_call> Unknown role: bash", "server_parser"),
    ("The model produced output that does not match the expected peg-native format", "server_parser"),
    ("XML syntax error on line 6: unexpected EOF", "server_parser"),
    ('llama-server returned invalid tool call arguments for "f": unexpected end of JSON input', "server_parser"),
    ("EOF", "server_parser"),
    ("failed to parse JSON: invalid character 'P' looking for beginning of value", "server_parser"),
    ("failed to parse JSON: Value looks like object, but can't find closing '}' symbol", "server_parser"),
    ("failed to parse JSON: json: cannot unmarshal number into Go struct field .name of type string", "server_parser"),
    ("failed to parse Laguna JSON tool call: invalid character 'x' looking for beginning of value", "server_parser"),
    ("failed to parse XML: XML syntax error on line 3: unexpected EOF", "server_parser"),
    ("incomplete GLM tool call: XML syntax error", "server_parser"),
    ("mismatched arg_key and arg_value counts: 2 keys, 1 values", "server_parser"),
    ('required argument "city" is missing for tool "get_weather"', "server_parser"),
    ('tool "get_stocks" is not declared', "server_parser"),
    ("tool 'get_stocks' not found", "server_parser"),
    ("empty function name", "server_parser"),
    ("got exception: Unexpected empty grammar stack after accepting piece: > (886)", "server_parser"),
    ("Failed to parse tool call: Unexpected end of content.", "server_parser"),
    ("JSON schema conversion failed:\nUnrecognized schema: true", "schema"),
    (
        "Unable to generate parser for this template. JSON schema conversion failed:\nPattern must start with '^'",
        "schema",
    ),
    (
        "Unable to generate parser for this template. JSON schema error at #/properties/a: cannot resolve $ref",
        "schema",
    ),
    ("Unrecognized schema: true", "schema"),
    ("Pattern must start with '^' and end with '$'", "schema"),
    ("no such schema #/$defs/ObjectTypeDefinition located in </undefined>", "schema"),
    ("tool parameters array type must have items", "schema"),
    ("object has unsupported top-level schema keyword 'oneOf'", "schema"),
    (
        (
            "Unable to generate parser for this template. Automatic parser generation failed: JSON schema error at"
            " #/properties/a: cannot resolve $ref #/nowhere, nowhere not found"
        ),
        "schema",
    ),
    ("failed to parse grammar", "schema"),
    ("Failed to initialize samplers: failed to parse grammar", "schema"),
    ("The provided JSON schema contains features not supported by xgrammar.", "schema"),
    (
        (
            "json: cannot unmarshal bool into Go struct field"
            " ToolFunctionParameters.tools.function.parameters.properties of type api.ToolProperty"
        ),
        "schema",
    ),
    (
        "json: cannot unmarshal array into Go struct field .tools.function.parameters.properties.type of type string",
        "schema",
    ),
    ("Invalid tool_choice type: 'object'. Supported string values: none, auto, required", "tool_choice"),
    ('Value error, `tool_choice` must either be a named tool, "auto", or "none".', "tool_choice"),
    ("Value error, When using `tool_choice`, `tools` must be set.", "tool_choice"),
    ("Unsupported param: tool_choice", "tool_choice"),
    ("Only fast tokenizers are supported", "tool_choice"),
    ("Thinking mode does not support this tool_choice", "tool_choice"),
    (
        (
            "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to"
            " required or object in thinking mode"
        ),
        "tool_choice",
    ),
    ("Thinking may not be enabled when tool_choice forces tool use.", "tool_choice"),
    (
        "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
        "empty_tools",
    ),
    (
        "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        "empty_tools",
    ),
    ("[] is too short - 'tools'", "empty_tools"),
    ("Failed to advance FSM for request chatcmpl-1 for tokens 151657. Please file an issue.", "grammar"),
    ("Unexpected: grammar rejected tokens [151657] for request chatcmpl-1. Terminating request.", "grammar"),
    ("'type' of tool must be 'function'", "tool_type"),
    ("tool type namespace not supported", "tool_type"),
    ('Failed to parse tools: Unsupported tool type: "a"; tools = [{"description": "jinja"}]', "tool_type"),
    ("Tool call id was call_0fypS1hVX but must be a-z, A-Z, 0-9, with a length of 9.", "ids"),
    ("Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error", "history"),
    ("invalid tool call arguments", "history"),
    ("TypeError: Can only get item pairs from a mapping.", "history"),
    (
        "json: cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls.function.arguments",
        "history",
    ),
    ("Value looks like object, but can't find closing '}' symbol", "history"),
    ("Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...", "roles"),
    ("No user query found in messages.", "roles"),
    ("System message must be at the beginning.", "system_place"),
    (
        (
            "Unable to generate parser for this template. Automatic parser generation failed: \n------------\nWhile"
            " executing CallExpression at line 2, column 72 in source:\n... and not loop.first %}{{"
            " raise_exception('System message must be at the beginnin...\n   ^\nError: Jinja Exception: System message"
            " must be at the beginning."
        ),
        "system_place",
    ),
    ('Error rendering prompt with jinja template: "System message must be at the beginning."', "system_place"),
    ("Unexpected message role.", "system_place"),
    (
        (
            "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant `developer`,"
            " expected one of `system`, `user`, `assistant`, `tool` at line 1 column 54"
        ),
        "system_place",
    ),
    ("System role not supported", "roles"),
    ('Error rendering prompt with jinja template: "Unknown test: sequence".', "template"),
    ("Value is not callable: null at row 49, column 79", "template"),
    ("Unable to generate parser for this template. Automatic parser generation failed: ", "template"),
    (
        (
            "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template"
            " if the tokenizer does not define one."
        ),
        "template",
    ),
    ("missing required fields in tool call template", "template"),
    ("failed to find tool template", "template"),
    ("no template objects found", "template"),
    ("logprobs is not supported with tools + stream", "beside_tools"),
    ("Cannot use custom grammar constraints with tools.", "beside_tools"),
    ('"go" does not support thinking', "reasoning_param"),
    ('think value "medium" is not supported for this model', "reasoning_param"),
    ("This model does not expose reasoning configuration", "reasoning_param"),
    (
        (
            "param `reasoning_effort` is not supported on OCI model `m` (the model rejects reasoningEffort); set"
            " drop_params=True to omit it"
        ),
        "reasoning_param",
    ),
    (
        (
            "litellm.UnsupportedParamsError: groq does not support parameters: ['reasoning_effort'], for model=m. To"
            " drop these, set `litellm.drop_params=True` or for proxy:"
        ),
        "reasoning_param",
    ),
    ("Only text tool_result blocks are supported when tool_result.content is an array.", "tool_media"),
    ("Invalid 'messages' in payload. Please check the structure of your 'messages' and try again.", "tool_media"),
    ("Output of tool call should be 'Input text'", "tool_media"),
    ("only supports text content", "tool_media"),
    ("json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string", "content_parts"),
    ("Invalid 'messages': content: expected string, received object", "content_parts"),
    (
        (
            '[{"loc": ["body", "messages", 1, "content"], "msg": "none is not an allowed value",'
            ' "type": "type_error.none.not_allowed"}]'
        ),
        "null_content",
    ),
    ('{"path": ["messages", 1, "content"], "message": "Expected string, received null"}', "null_content"),
    (
        (
            "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted',"
            " 'input': {'include_usage': True}}]"
        ),
        "stream_options",
    ),
    (
        (
            "[{'type': 'extra_forbidden', 'loc': ('body', 'parallel_tool_calls'), 'msg': 'Extra inputs are not"
            " permitted', 'input': False}]"
        ),
        "parallel",
    ),
    ('json: unknown field "store"', "unknown_param"),
    ("Unknown parameter: 'tools[0].function.strict'.", "unknown_param"),
    ("Unrecognized request argument supplied: metadata", "unknown_param"),
    ("'messages.0' : property 'metadata' is unsupported", "unknown_param"),
    (
        (
            "[{'type': 'extra_forbidden', 'loc': ('body', 'tools', 0, 'function', 'strict'), 'msg': 'Extra inputs are"
            " not permitted', 'input': True}]"
        ),
        "unknown_param",
    ),
    (
        (
            "1 validation error for ChatCompletionRequest\nstore\n  Extra inputs are not permitted"
            " [type=extra_forbidden, input_value=True, input_type=bool]"
        ),
        "unknown_param",
    ),
    (
        (
            "Invalid JSON payload received. Unknown name \"strict\" at 'tools[0].function_declarations[0]': Cannot find"
            " field."
        ),
        "unknown_param",
    ),
    (
        (
            "thinking_token_budget is set but reasoning_config is not configured. Please set --reasoning-parser and/or"
            " --reasoning-config to use thinking_token_budget."
        ),
        "unknown_param",
    ),
    (
        ("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
        "unknown_param",
    ),
    ('json: unknown field "max_completion_tokens"', "unknown_param"),
    ("max_completion_tokens: extra inputs are not permitted", "unknown_param"),
    ("Unrecognized request argument supplied: reasoning_effort", "reasoning_param"),
    ("property 'reasoning_effort' is unsupported", "reasoning_param"),
    *((overflow["text"], "overflow") for overflow in OVERFLOWS),
    ("The model `nope` does not exist.", "refused"),
    ("Internal Server Error", "refused"),
    ('invalid think value: "bogus" (must be "high", "medium", "low", "max", true, or false)', "refused"),
    ("unexpected EOF", "refused"),
    ('json: unknown field "response_format"', "refused"),
    ("Unsupported parameter: 'stop' is not supported with this model.", "refused"),
    ("Unknown parameter: 'tools'.", "refused"),
    ("Unsupported value: 'temperature' does not support 0 with this model.", "refused"),
    ("", "refused"),
]


@pytest.mark.parametrize(("text", "kind"), SEEN, ids=[text[:40] for text, _ in SEEN])
def test_a_servers_text_is_known(text, kind):
    assert classify(text) == kind


def test_no_text_is_listed_twice():
    assert len(SEEN) == len({text for text, _ in SEEN})


def alternatives(pattern):
    """Split a pattern at the bars that are outside of its groups."""
    parts, depth = [""], 0
    for token in re.findall(r"\\.|.", pattern):
        depth += (token == "(") - (token == ")")
        if token == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return parts


@pytest.mark.parametrize("rule", RULES, ids=[f"{rule.kind} {rule.pattern[:40]}" for rule in RULES])
def test_a_server_sends_what_each_part_of_a_rule_is_for(rule):
    """So no rule, and no part of one, is shadowed by another, or there without a text that some server sends."""
    own = [text for text, _ in SEEN if match_rule(text) is rule]
    parts = alternatives(rule.pattern)
    for part in parts:
        others = [other for other in parts if other != part]
        reached = [text for text in own if re.search(part, text, re.IGNORECASE)]
        assert any(not any(re.search(other, text, re.IGNORECASE) for other in others) for text in reached), part


def test_rules_compile_and_name_their_source():
    for rule in RULES:
        re.compile(rule.pattern)
        assert rule.source


def test_every_kind_has_its_remedies_and_every_remedy_is_known():
    assert set(REMEDIES) == set(get_args(FailureKind))
    assert {step for steps in REMEDIES.values() for step in steps} == {*get_args(Adaptation), *get_args(RetryAction)}
    assert set(REMEDIES) >= LASTING_KINDS


UNCOUNTED_KINDS = {
    "beside_tools": "another key of the request was refused",
    "schema": "one tool of the request was refused",
    "tool_choice": "the request's own choice was refused",
    "tool_type": "one tool of the request was refused",
    "ids": "the request's history was refused",
    "history": "the request's history was refused",
    "roles": "the request's messages were refused",
    "reasoning_param": "the request's own parameter was refused",
    "tool_media": "an image in the request was refused, or another part of it",
    "null_content": "the request's messages were refused",
    "content_parts": "the request's messages were refused",
    "stream_options": "the request's own parameter was refused",
    "parallel": "the request's own parameter was refused",
    "system_place": "the request's messages were refused",
    "empty_tools": "the request's own parameter was refused",
    "unknown_param": "the request's own parameter was refused",
    "grammar": "the request's own choice made the server use one",
    "overflow": "the request's prompt is too long",
    "refused": "it may be anything in the request, and is handed on",
    "too_large": "the limit is ours",
    "connect": "no mode would reach the server",
    "timeout": "the limit is the client's, and holds in every mode",
    "malformed": "the model's doing, with the request's tools",
    "truncated": "the limit is the request's own",
    "unknown_tool": "the model's doing, with the request's tools",
    "choice": "the model's doing, with the request's own choice",
    "format": "the model's doing, with the request's own form",
}
"""Failures that the breaker does not count, with the reason."""


def test_of_every_kind_it_is_said_why_it_is_counted_or_not():
    assert COUNTED_KINDS.keys() | UNCOUNTED_KINDS.keys() == set(get_args(FailureKind))
    assert not COUNTED_KINDS.keys() & UNCOUNTED_KINDS.keys()
    assert set(COUNTED_KINDS) >= LASTING_KINDS
    assert all((*COUNTED_KINDS.values(), *UNCOUNTED_KINDS.values()))


def test_a_refusal_is_said_otherwise_in_the_same_mode():
    adaptations = {*get_args(Adaptation)}
    assert all(REMEDIES[kind][0] in adaptations for kind in REFUSAL_KINDS)
    assert not REFUSAL_KINDS & COUNTED_KINDS.keys()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('json: unknown field "store"', ("store",)),
        ("Unrecognized request arguments supplied: metadata, store", ("store", "metadata")),
        ("Unsupported parameter: 'max_tokens' is not supported with this model.", ("max_tokens",)),
        ("Unknown parameter: 'tools[0].function.strict'.", ("strict",)),
        ('json: unknown field "response_format"', ()),
        ("The value of 'store' must be a boolean.", ()),
        ("", ()),
    ],
)
def test_which_parameters_a_text_refuses(text, names):
    assert refused_parameters((text,)) == names


def test_classifying_is_case_blind():
    assert classify("HARMONYERROR") == "harmony"


def test_the_start_of_an_error_text_decides_and_then_its_end():
    quoted = "x" * 10_000_000
    assert classify(f"error parsing tool call: raw='{quoted}HarmonyError") == "server_parser"
    assert classify(f"Traceback (most recent call last):\n{quoted}\nHarmonyError: unexpected tokens") == "harmony"
    assert classify(f"{quoted}HarmonyError{quoted}") == "refused"
    assert classify(f"{quoted[:SEARCHED_HEAD]}EOF") == "refused"  # which means something only alone
    tail = "Failed to parse tools: ".ljust(SEARCHED_TAIL, "x")
    assert (classify(tail), classify(quoted + tail)) == ("tool_type", "refused")


@pytest.mark.parametrize("size", [10, SEARCHED_HEAD, SEARCHED_HEAD + 5, 100_000, 1_000_000])
@pytest.mark.parametrize("unit", ["x", "tool ", "content ", "required argument ", "maximum context length is 1 tokens"])
def test_no_more_characters_are_searched_than_it_says(monkeypatch, size, unit):
    searched = []
    text = (unit * size)[:size]

    class Counting:
        def __init__(self, pattern):
            self.pattern = pattern

        def search(self, part, *where):
            searched.append(len(part) if not where else where[1] - where[0])
            return self.pattern.search(part, *where)

    monkeypatch.setattr(rules, "_COMPILED", [(Counting(pattern), rule) for pattern, rule in rules._COMPILED])
    monkeypatch.setattr(overflow, "_COMPILED", [Counting(pattern) for pattern in overflow._COMPILED])
    for name in ("_OLLAMA_PREFIX", "_LLAMACPP_PREFIX"):
        monkeypatch.setattr(rules, name, Counting(getattr(rules, name)))
    classify(text)
    read_overflow(text)
    find_model_text(text)
    most = SEARCHED_HEAD + SEARCHED_TAIL + len("...")
    assert 0 < sum(searched) <= most * (len(rules.RULES) + len(overflow._COMPILED) + 2)
    assert max(searched) <= SEARCHED_HEAD
