"""Model families whose own templates raw mode is tried with: how each writes calls, ends turns and opens reasoning.

The templates are in the environment `templates`; the tokens are those of the families' tokenizers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import environments
import pytest
from recipes.recipe import CannotMakeError

from promptools.lab.script import ScriptedReply, SpecialTokens

QUESTION = "What is the weather in Paris?"
TALK = "Would you talk of Paris?"
NAMED = "What is the time in Paris?"
RUNAWAY = "Is it cold in Paris?"
RESULT = "sunny in Paris"
ANSWER = "It is sunny in Paris: 18 °C. ☀"
COLD = "It is cold: 5 °C."


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """A template, and what a model writes that was trained on it."""

    name: str
    """The template's file, and the first part of the test's id."""
    model: str
    """The model's name, by which its family is known."""
    call: str
    """A call of get_weather with the city Paris."""
    begun: str
    """How the prompt ends where a call is required: the turn's opening and the beginning of any call."""
    begun_named: str
    """The same for a call of get_time."""
    in_history: str
    """The call in the history, as the template writes it."""
    runaway: str
    """What the model writes after the end of its turn."""
    special: SpecialTokens = field(default_factory=SpecialTokens)
    thoughts: str = ""
    """What comes before the call where the template has opened the reasoning."""

    def lines(self) -> list[ScriptedReply]:
        """Return the script of the model."""
        called_time = self.call.replace("get_weather", "get_time")
        return [
            ScriptedReply(QUESTION, self.thoughts + self.call),
            ScriptedReply(RESULT, self.thoughts + ANSWER),
            ScriptedReply(TALK, f"{self.thoughts}I would rather talk."),
            ScriptedReply(TALK, self._rest(self.call, self.begun), setting=self.begun),
            ScriptedReply(NAMED, f"{self.thoughts}I would rather talk."),
            ScriptedReply(NAMED, self._rest(called_time, self.begun_named), setting=self.begun_named),
            ScriptedReply(RUNAWAY, f"{self.thoughts}{COLD}{self.runaway}"),
        ]

    def _rest(self, call: str, begun: str) -> str:
        """Return what is left of a call after its beginning."""
        size = next(size for size in range(len(call), 0, -1) if begun.endswith(call[:size]))
        return call[size:]


def template(name: str) -> Path:
    """Return a template; where it cannot be had, the test is skipped or fails."""
    try:
        return environments.path_of("templates") / f"{name}.jinja"
    except CannotMakeError as error:
        if os.environ.get("PROMPTOOLS_E2E") == "required":
            pytest.fail(f"the templates cannot be fetched, and PROMPTOOLS_E2E asks for them: {error}")
        pytest.skip(f"the templates cannot be fetched: {error}")


HERMES_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
QWEN_TURN = "<|im_start|>assistant\n"
THOUGHTS = "I need the tool.\n</think>\n\n"
DEEPSEEK = SpecialTokens(
    (
        *("<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
        *("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    ),
    bos="<｜begin▁of▁sentence｜>",
    eos="<｜end▁of▁sentence｜>",
)

FAMILIES = {
    family.name: family
    for family in (
        ModelFamily(
            name="hermes",
            model="qwen3-0.6b",
            call=HERMES_CALL,
            begun=f'{QWEN_TURN}<tool_call>\n{{"name": "',
            begun_named=f'{QWEN_TURN}<tool_call>\n{{"name": "get_time", "arguments":',
            in_history=HERMES_CALL,
            runaway="<|im_end|>\n<|im_start|>user\nAnd in Rome?",
        ),
        ModelFamily(
            name="qwq",
            model="qwq-32b",
            call=HERMES_CALL,
            begun=f'{QWEN_TURN}<think>\n\n</think>\n\n<tool_call>\n{{"name": "',
            begun_named=f'{QWEN_TURN}<think>\n\n</think>\n\n<tool_call>\n{{"name": "get_time", "arguments":',
            in_history=HERMES_CALL,
            runaway="<|im_end|>\n<|im_start|>user\nAnd in Rome?",
            thoughts=THOUGHTS,
        ),
        ModelFamily(
            name="qwen3_coder",
            model="qwen3-coder-30b",
            call="<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
            begun=f"{QWEN_TURN}<tool_call>\n<function=",
            begun_named=f"{QWEN_TURN}<tool_call>\n<function=get_time>\n",
            in_history="<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>",
            runaway="<|im_end|>\n<|im_start|>user\nAnd in Rome?",
        ),
        ModelFamily(
            name="llama3",
            model="llama-3.1-8b-instruct",
            call='{"name": "get_weather", "parameters": {"city": "Paris"}}',
            begun='<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "',
            begun_named='<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "get_time", "parameters":',
            in_history='{"name": "get_weather", "parameters": {"city": "Paris"}}<|eot_id|>',
            runaway="<|eot_id|>",
            special=SpecialTokens(
                ("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|python_tag|>"),
                bos="<|begin_of_text|>",
                eos="<|eot_id|>",
            ),
        ),
        ModelFamily(
            name="mistral",
            model="mistral-nemo-12b-instruct",
            call='[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]',
            begun='[/INST][TOOL_CALLS][{"name": "',
            begun_named='[/INST][TOOL_CALLS][{"name": "get_time", "arguments":',
            in_history='[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}',
            runaway="</s>",
            special=SpecialTokens(
                ("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]"),
                bos="<s>",
                eos="</s>",
            ),
        ),
        ModelFamily(
            name="glm",
            model="glm-4.6",
            call="<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
            begun="<|assistant|><tool_call>",
            begun_named="<|assistant|><tool_call>get_time",
            in_history="<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
            runaway="<|user|>\nAnd in Rome?",
            special=SpecialTokens(
                ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"), eos="<|endoftext|>"
            ),
        ),
        ModelFamily(
            name="deepseek",
            model="deepseek-r1-0528",
            call="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
            '```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
            begun="<think>\n\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            begun_named="<think>\n\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
            "get_time\n```json\n",
            in_history='function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>',
            runaway="<｜end▁of▁sentence｜>",
            special=DEEPSEEK,
            thoughts=THOUGHTS,
        ),
        ModelFamily(
            name="dsml",
            model="deepseek-v3.2",
            call='<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
            '<｜DSML｜parameter name="city" string="true">Paris'
            "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
            begun='<think></think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="',
            begun_named='<think></think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_time">\n',
            in_history='<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Paris<',
            runaway="<｜end▁of▁sentence｜>",
            special=DEEPSEEK,
            thoughts=THOUGHTS,
        ),
    )
}
