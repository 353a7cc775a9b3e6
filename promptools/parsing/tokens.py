"""Tokens that a model says to its server and no reader: those that end its turn, and where any token is quoted."""

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
END_TOKENS: Final = tuple(dict.fromkeys(token for each in _BY_FAMILY.values() for token in each))
"""What ends a turn and is let through by servers. At the end of a reply and beside a call it is none of its words."""

_NUMBERED: Final = ("<|reserved_", "<|unused_", "<|extra_", "<|dummy_")
NUMBERED_FIRST: Final = _NUMBERED
NUMBERED: Final = rf"(?:{'|'.join(map(re.escape, _NUMBERED))})[a-z_]{{0,24}}+(?:\Z|\d{{1,7}}+(?:\Z|\|(?:\Z|>)))"
"""A token that a vocabulary holds in reserve and a model may end with, `<|reserved_special_token_5|>`, or its beginning
at the end of the text."""
FREE: Final = frozenset(("<|python_tag|>", "<|from|>", "<|recipient|>"))
"""Tokens behind which a program stands, or a name: they are lone ones only where nothing follows."""
LINE: Final = 256
"""Characters before a token that are looked at."""

_SENTENCE_ENDS = re.compile(r"[.!?:…。！？：][\"'”’»)\]*_]{0,4}\Z")
_SPECIAL = re.compile(r"<[|｜][^<>\s]{1,64}[|｜]>")
_ONE = r"(?:<[^<>\s]+>|\[/?[A-Z_]+\]|\]<\]\w+\[>\[)"
_TOKENS = re.compile(rf"(?:{_ONE}\s*+)++")
_LISTED = re.compile(r"\s*(?:[-*+>#|]+|\d{1,3}[.)])\Z")
_QUOTES = "\"'`“”„‘’«»‹›「」『』([{*_=,/|"


def is_quoted(before: str, gap: str, following: str) -> bool:
    """Whether a token amid words is talked about: it stands in a sentence, as a word or in quotes.

    `before` are the characters said before it, `gap` is the white space behind it, `following` the word behind that. A
    token that was not meant to be seen is glued to the words before it, or stands between two sentences. Where others
    were said it is one of them.
    """
    if _SPECIAL.search(before):
        return True
    line = before[before.rfind("\n") + 1 :]
    words = line.rstrip()
    if words and words == line:
        goes_on = gap != "" and "\n" not in gap and following[:1].islower()
        return goes_on or words[-1] in _QUOTES or _LISTED.match(words) is not None
    if words and (_LISTED.match(words) or not _SENTENCE_ENDS.search(words)):
        return True
    return "\n" not in gap and following[:1] != "" and _goes_on(gap, following[0])


def are_tokens(text: str) -> bool:
    """Whether a text is special tokens, and white space, and nothing else."""
    return _TOKENS.fullmatch(text) is not None


def ends_sentence(line: str) -> bool:
    """Whether a line ends in a sentence's end, and no white space behind it."""
    return _SENTENCE_ENDS.search(line) is not None


def _goes_on(gap: str, first: str) -> bool:
    """Whether a sentence that begins with a token goes on behind it."""
    return first.islower() if gap else first in ",;:.!?)\"'`”’»/|<"


def is_html(mark: str, before: str) -> bool:
    """Whether what looks like an end token closes an element of HTML."""
    return mark == "</s>" and before.rfind("<s>") > before.rfind("</s>")
