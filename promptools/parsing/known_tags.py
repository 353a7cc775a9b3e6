"""Tags that models write around reasoning, answers and tool results, by family."""

from __future__ import annotations

from typing import Final

REASONING_TAGS: Final[tuple[tuple[str, str], ...]] = (
    ("<think>", "</think>"),  # most families
    ("<thinking>", "</thinking>"),  # prompted models
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<scratch_pad>", "</scratch_pad>"),  # Hermes 3
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("<mm:think>", "</mm:think>"),  # MiniMax M3
    ("[THINK]", "[/THINK]"),  # Mistral, tokenizer v13 and later
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Cohere
    ("◁think▷", "◁/think▷"),  # Kimi VL
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),  # Kimi K3
    ("<|open|> think <|sep|>", "<|close|> think <|sep|>"),  # as a detokenizer prints it that sets tokens apart
    ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),  # PLaMo 3
    ("<|channel>thought\n", "<channel|>"),  # Gemma 4
    ("<ifm|think>", "</ifm|think>"),  # K2 Horizon, which thinks at three speeds
    ("<ifm|think_fast>", "</ifm|think_fast>"),
    ("<ifm|think_faster>", "</ifm|think_faster>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("<|content_thinking|>", "<|end_message|>"),  # Inkling, whose template prints the header before it
    ("<|message_model|><|content_thinking|>", "<|end_message|>"),
    ("[thinking]", "[/thinking]"),
)
"""Opening tags of reasoning and their closing tags. If the template prints the opening tag, the reply starts inside."""

REASONING_CLOSERS: Final[dict[str, str]] = dict(REASONING_TAGS)

TAG_SUFFIX: Final = r"[\w-]{1,32}"
SUFFIXED_THINK_TAG: Final = rf"</?think:(?:\Z|{TAG_SUFFIX}(?:>|\Z))"
"""Hunyuan 4 adds the same suffix to each of its tags, `<think:6124c78e>`: the pattern of the opening tag, and of a
closing tag without one."""


GEMMA_CHANNEL: Final = "<|channel>"
"""Gemma 4's opening tag without its label, which counts only if no text precedes it."""
GEMMA_CHANNEL_LABEL: Final = "thought\n"


def reasoning_closer(opener: str) -> str:
    """Return the closing tag of an opening tag of reasoning."""
    if opener == GEMMA_CHANNEL:
        return REASONING_CLOSERS[GEMMA_CHANNEL + GEMMA_CHANNEL_LABEL]
    return REASONING_CLOSERS.get(opener) or f"</{opener[1:]}"


ANSWER_TAGS: Final[dict[str, str]] = {
    "<|open|>response<|sep|>": "<|close|>response<|sep|>",  # Kimi K3
    "<|open|> response <|sep|>": "<|close|> response <|sep|>",
    "<|START_RESPONSE|>": "<|END_RESPONSE|>",  # Command R7B and Command A
    "<|START_TEXT|>": "<|END_TEXT|>",  # Cohere since 2026
    "[BEGIN FINAL RESPONSE]": "[END FINAL RESPONSE]",  # Apriel
    "<|content_text|>": "<|end_message|>",  # Inkling, as above
    "<|message_model|><|content_text|>": "<|end_message|>",
    "<|content_tool_error|>": "<|end_message|>",  # an error as text
    "<|message_model|><|content_tool_error|>": "<|end_message|>",
    "<response>": "</response>",  # Granite 3.3 and Ernie 4.5, when they think
    "<answer>": "</answer>",  # Hunyuan A13B, when it thinks
    "助手：": "",  # "assistant:", Hunyuan A13B
}
"""Tags around an answer. An opening tag counts where no text came since a tag or a call, a closing tag after one."""

COMMON_ANSWER_TAGS: Final = frozenset(("<response>", "</response>", "<answer>", "</answer>"))
"""Tags that an answer may contain as text: they count only directly after reasoning."""

READABLE_ANSWER_TAGS: Final = frozenset(("助手：", "[BEGIN FINAL RESPONSE]"))
"""Tags that are text where they do not enclose an answer."""

LONE_REASONING_CLOSERS: Final = tuple(closer for _, closer in REASONING_TAGS if closer not in ANSWER_TAGS.values())
"""Closing tags that show that what precedes is reasoning even if the opening tag is missing."""

RESULT_OPENERS: Final = (
    "<tool_response>",
    "<tool_responses>",
    "<function_results>",
    "<function_response>",
    "<atem:function_results>",
    "<tool_result>",
    "<toolbridge_result>",
    "<TOOL_RESPONSE>",
    "<start_function_response>",
    "Observation:",
    "✿RESULT✿",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool_outputs_begin｜>",
    "<｜tool_output_begin｜>",
    "[TOOL_RESULTS]",
    "<|tool_response>",
    "<|tool_response:",
    "<|tool_response_start|>",
    "<|START_TOOL_RESULT|>",
    "<tool_output>",
    "```tool_output",
    "<|im_start|>user",
    "<|im_start|>tool",
    "<|im_start|>function",
    "<|start_header_id|>ipython",
    "<|start_header_id|>tool",
    "<|start_header_id|>user",
    "<start_of_turn>user",
    "<start_of_turn>tool",
    "<|turn>user",
    "<|turn>tool",
    "<｜User｜>",
    "<|user|>\n",
    "<|im_system|>",
    "<|im_user|>",
    "]~b]tool",
    "]~b]user",
    "function result<|role_sep|>",
)
"""Openings of a tool's result, or of the turn that gives it: next to a call the model imagines it and what follows."""

RESERVED_TAGS: Final = frozenset((*REASONING_CLOSERS, *ANSWER_TAGS, *RESULT_OPENERS))
"""Tags with a meaning of their own, even if a tool has the same name."""
