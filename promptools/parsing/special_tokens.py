"""Special tokens that are meant for the server, such as those that end a turn, and whether the text quotes one."""

from __future__ import annotations

import re
from typing import Final

_BY_FAMILY: Final = {
    "ChatML: Qwen, Kimi K2, Yi, InternLM": ("<|im_end|>",),
    "GPT-2's vocabulary: Qwen, GLM, Phi, OLMo, Granite": ("<|endoftext|>", "<|end_of_text|>"),
    "Llama 3": ("<|eot_id|>", "<|eom_id|>"),
    "Llama 4": ("<|eot|>", "<|eom|>"),
    "Llama 2, Mistral, Zephyr": ("</s>",),
    "Phi 3 and 4, Granite 3, Harmony": ("<|end|>", "<|return|>", "<|call|>"),
    "Functionary": ("<|stop|>",),
    "Gemma 1 to 3": ("<eos>", "<end_of_turn>"),
    "Gemma 4": ("<turn|>", "<|tool_response>"),
    "Kimi K2, Moonlight": ("[EOS]", "[EOT]"),
    "Kimi K3": ("<|end_of_msg|>", "<|close|>message<|sep|>"),
    "PLaMo 3": ("<|plamo:tag|>",),
    "Inkling": ("<|content_model_end_sampling|>",),
    "GLM 4 and later": ("<|observation|>", "<|user|>"),
    "DeepSeek": ("<｜end▁of▁sentence｜>", "<|end▁of▁sentence|>", "<|EOT|>"),
    "OpenChat, Starling": ("<|end_of_turn|>",),
    "Cohere": ("<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),
    "ERNIE 4.5": ("<|end_of_sentence|>",),
    "MiniMax": ("[e~[", "<end_of_sentence>"),
    "Ling, Ring": ("<|role_end|>",),
    "Seed-OSS": ("<seed:eos>",),
    "EXAONE": ("[|endofturn|]",),
    "Apertus": ("<|assistant_end|>",),
}
END_OF_TURN_TOKENS: Final = tuple(dict.fromkeys(token for each in _BY_FAMILY.values() for token in each))
"""Tokens that end a turn and pass through some server. At the end of a reply and next to a call they are no text."""

_RESERVED_PREFIXES: Final = ("<|reserved_", "<|unused_", "<|extra_", "<|dummy_")
RESERVED_TOKEN_PREFIXES: Final = _RESERVED_PREFIXES
RESERVED_TOKEN: Final = (
    rf"(?:{'|'.join(map(re.escape, _RESERVED_PREFIXES))})[a-z_]{{0,24}}+(?:\Z|\d{{1,7}}+(?:\Z|\|(?:\Z|>)))"
)
"""A reserved token of a vocabulary, which a model may end with: `<|reserved_special_token_5|>`, or its beginning at the
end of the text."""
TOKENS_BEFORE_TEXT: Final = frozenset(("<|python_tag|>", "<|from|>", "<|recipient|>"))
"""Tokens that a program or a name follows: one stands alone only if nothing does."""
QUOTE_CONTEXT: Final = 256
"""Characters before a token that are examined."""

_SENTENCE_ENDS = re.compile(r"[.!?:…。！？：][\"'”’»)\]*_]{0,4}\Z")
_SPECIAL = re.compile(r"<[|｜][^<>\s]{1,64}[|｜]>")
_ONE = r"(?:<[^<>\s]+>|\[/?[A-Z_]+\]|\]<\]\w+\[>\[)"
_TOKENS = re.compile(rf"(?:{_ONE}\s*+)++")
_LIST_ITEM = re.compile(r"\s*(?:[-*+>#|]+|\d{1,3}[.)])\Z")
_QUOTES = "\"'`“”„‘’«»‹›「」『』([{*_=,/|"


def is_quoted_token(before: str, gap: str, following: str) -> bool:
    """Whether a token inside text is quoted: used in a sentence, as a word of it or in quotes.

    `before` is the text before it, `gap` the white space after it, `following` the text after that. A token that leaked
    is glued to the text before it, or lies between two sentences. If `before` contains tokens that count as text, so
    does this one.
    """
    if _SPECIAL.search(before):
        return True
    line = before[before.rfind("\n") + 1 :]
    stripped = line.rstrip()
    if stripped and stripped == line:
        continues = gap != "" and "\n" not in gap and following[:1].islower()
        return continues or stripped[-1] in _QUOTES or _LIST_ITEM.match(stripped) is not None
    if stripped and (_LIST_ITEM.match(stripped) or not _SENTENCE_ENDS.search(stripped)):
        return True
    return "\n" not in gap and following[:1] != "" and _sentence_continues(gap, following[0])


def is_only_tokens(text: str) -> bool:
    """Whether `text` is nothing but special tokens and white space."""
    return _TOKENS.fullmatch(text) is not None


def ends_sentence(line: str) -> bool:
    """Whether `line` ends with the end of a sentence, without white space after it."""
    return _SENTENCE_ENDS.search(line) is not None


def _sentence_continues(gap: str, first: str) -> bool:
    """Whether a sentence that begins with a token continues after it."""
    return first.islower() if gap else first in ",;:.!?)\"'`”’»/|<"


def is_html_closer(token: str, before: str) -> bool:
    """Whether what looks like an end token is the closing tag of an HTML element."""
    return token == "</s>" and before.rfind("<s>") > before.rfind("</s>")
