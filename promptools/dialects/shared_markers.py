"""The markers that no dialect owns: templates of many families write them, with calls in any dialect or none.

A marker of one family is declared by its dialect, as `reasoning_tags`, `answer_tags`, `result_openers` or `end_tokens`
(see `promptools.dialects.contract`). Here are the others: tags that models learn from prompts, ChatML's tokens, which
half of all families use, the end tokens of families that write their calls in another family's dialect, and the closing
tags that models write in place of their own. `promptools.dialects.reply_markers` puts the first three together with the
dialects' own.
"""

from __future__ import annotations

from typing import Final

REASONING_TAGS: Final = {
    "<think>": "</think>",  # most families
    "<thinking>": "</thinking>",  # prompted models
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "[thinking]": "[/thinking]",
}
RESULT_OPENERS: Final = (
    "<function_response>",  # prompted models
    "<|im_start|>user",  # ChatML
    "<|im_start|>tool",
    "<|im_start|>function",
)
END_TOKENS: Final = (
    "<|im_end|>",  # ChatML: Qwen, Kimi K2, Yi, InternLM
    "<|endoftext|>",  # GPT-2's vocabulary: Qwen, GLM, Phi, OLMo, Granite
    "<|end_of_text|>",
    "</s>",  # Llama 2, Mistral, Zephyr
    "<|end_of_turn|>",  # OpenChat, Starling
    "<|end_of_sentence|>",  # ERNIE 4.5
)
TURN_TOKENS: Final = (
    "<|im_start|>assistant",  # ChatML
    "<|start_header_id|>assistant<|end_header_id|>",  # Llama 3
    "<|start_of_role|>assistant<|end_of_role|>",  # Granite
    "<|im_assistant|>assistant<|im_middle|>",  # Kimi K2
    "<|assistant|>",  # GLM, Phi
    "<|Assistant|>",
    "<｜Assistant｜>",  # DeepSeek
    "[|assistant|]",  # EXAONE
    "<start_of_turn>model",  # Gemma 2 and 3
    "<|turn>model",  # Gemma 4
    "]~b]ai",  # MiniMax
    "<role>ASSISTANT</role>",  # Ling
    "<s>",  # the beginning of a text: Llama 2, Mistral, Apertus, InternLM
    "<bos>",  # Gemma
    "[BOS]",  # Kimi K2, EXAONE
)
"""How the model's own turn begins, or a text: a model that goes on after the end of its turn writes it again."""
WRONG_CLOSERS: Final = ("</think>", "</tool_call>", "</tool_response>", "</response>")
"""Closing tags that models of any family write after the JSON of a call in place of its own.

They are those that the training data of most families have in common, and not all that any dialect declares: the JSON
may quote a closing tag, and would end there.
"""
