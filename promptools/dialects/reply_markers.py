"""The markers of reasoning, answers, results and turns that all registered dialects declare, combined.

They are recognized in every reply, whichever dialect its calls are written in, because a server may leave any of them
in the text, and models mix them. `reply_markers` returns them.

Two kinds of `Dialect.reasoning_tags` have special rules. First, one opening tag may be the beginning of another, as
Gemma 4's `<|channel>` is of `<|channel>thought`. Since the rest of the longer tag may have been lost, the short tag is
recognized only if no text precedes it. Second, a tag that ends in `{suffix}>`, such as `<think:{suffix}>`, matches any
suffix, but the closing tag must have the same suffix.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from itertools import chain
from typing import Final

from promptools.dialects import Edition, edition, get, names
from promptools.dialects.prefix_patterns import beginnings
from promptools.parsing.special_tokens import SPECIAL_TOKEN
from promptools.patterns import lazy_pattern

# The markers that belong to no dialect: templates of many families write them, with calls in any dialect or none.
#
# A marker of one family is declared by its dialect, as `reasoning_tags`, `answer_tags`, `result_openers` or
# `end_tokens` (see `promptools.dialects.contract`). Here are the others: tags that models learn from prompts,
# ChatML's tokens, which half of all families use, the end tokens of families that write their calls in another
# family's dialect, and the closing tags that models write in place of their own. `reply_markers` combines all but the
# last with the markers of the dialects.


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
"""Tokens that begin the model's turn, or the whole text, as `<s>` does.

A model that does not stop after its turn writes these tokens again.
"""
WRONG_CLOSERS: Final = ("</think>", "</tool_call>", "</tool_response>", "</response>")
"""Closing tags that models of any family write after the JSON of a call in place of the right one.

If JSON quotes one of these tags, the JSON ends at that tag. So the list has only tags that most families have in their
training data, not every closing tag that a dialect declares.
"""


# The markers above, combined with the markers of the dialects.


TAG_SUFFIX: Final = r"[\w-]{1,32}"
MAX_END: Final = 256
"""How many characters at the end of a text are searched for tokens that end a turn."""
_HOLE: Final = "{suffix}>"
_PLAIN_TAG = lazy_pattern(r"</?[a-z]+>\Z")
_READABLE_TAG = lazy_pattern(r"<[A-Za-z_:]+>\Z")


class ReplyMarkers:
    """Holds the markers of all registered dialects, and markers that belong to no single dialect."""

    def __init__(self) -> None:
        dialects = [get(name) for name in names()]
        tags = dict(chain(REASONING_TAGS.items(), *(dialect.reasoning_tags.items() for dialect in dialects)))
        own = chain.from_iterable(dialect.reasoning_tags.values() for dialect in dialects)
        self.template_closers = tuple(dict.fromkeys(("</think>", *(tag for tag in own if not tag.endswith(_HOLE)))))
        """The closing tags for reasoning whose opening tag the chat template has written.

        Tags that models learn from prompts are left out, since reasoning may contain them as text.
        """
        self.suffixed_tags = {
            opener.removesuffix(_HOLE): tags.pop(opener).removesuffix(_HOLE)
            for opener in [*tags]
            if opener.endswith(_HOLE)
        }
        """Maps opening tags with a suffix to their closing tags, both without the suffix: `<think:` to `</think:`."""
        self.unlabelled_openers = {
            opener: tags.pop(opener)
            for opener in [*tags]
            if any(other.startswith(opener) for other in tags if other != opener)
        }
        """Maps each opening reasoning tag that a longer one begins with, such as `<|channel>`, to its closing tag."""
        self.reasoning_tags = tags
        """Maps opening reasoning tags to closing tags, except those in `suffixed_tags` and `unlabelled_openers`."""
        self.answer_tags = dict(chain.from_iterable(dialect.answer_tags.items() for dialect in dialects))
        """Maps each opening answer tag to its closing tag, or to "" if the format has no closing tag."""
        self.result_openers = tuple(
            dict.fromkeys(chain(RESULT_OPENERS, *(dialect.result_openers for dialect in dialects)))
        )
        """The texts that begin a tool's result, or the turn that contains the result."""
        self.result_tags = tuple(opener for opener in self.result_openers if opener.startswith("<"))
        self.end_tokens = tuple(dict.fromkeys(chain(END_TOKENS, *(dialect.end_tokens for dialect in dialects))))
        """Tokens that end a turn. At the end of a reply and next to a call they are not text."""
        turn_tokens = chain.from_iterable(dialect.turn_tokens for dialect in dialects)
        self.turn_tokens = tuple(dict.fromkeys(chain(TURN_TOKENS, turn_tokens)))
        """Tokens that mark turns or belong to a prompt. They are dropped next to a call and after the end of a turn."""
        self.result_closers = tuple(f"</{opener[1:]}" for opener in self.result_openers if _READABLE_TAG.match(opener))
        """Closing tags of results, such as `</tool_response>`. After a call, they are not text."""
        self.tokens_before_text = frozenset(chain.from_iterable(dialect.tokens_before_text for dialect in dialects))
        """Tokens that begin a call but may also introduce a program or a name, such as `<|python_tag|>`.

        If text follows instead of a call, the token is kept as part of that text.
        """
        self.rescuing_dialects = frozenset(dialect.name for dialect in dialects if dialect.rescues)
        self.lone_closers = tuple(
            dict.fromkeys(closer for closer in tags.values() if closer not in self.answer_tags.values())
        )
        """Closing reasoning tags that are recognized even without an opening tag: the text before them is reasoning."""
        self.reserved_tags = frozenset((*tags, *self.answer_tags, *self.result_openers))
        """Tags that keep their meaning even if a tool has the same name."""
        self.plain_answer_tags = frozenset(
            tag for tag in chain(self.answer_tags, self.answer_tags.values()) if _PLAIN_TAG.match(tag)
        )
        """Answer tags that ordinary text may contain, such as `<answer>`.

        They are recognized only right after reasoning.
        """

    @cached_property
    def special_token_names(self) -> frozenset[str]:
        """The names of special tokens: `im_end` for `<|im_end|>`, `eos` for `<eos>`."""
        declared = chain(self.end_tokens, self.reserved_tags, self.lone_closers, self.tokens_before_text)
        names = chain.from_iterable(map(SPECIAL_TOKEN.findall, declared))
        return frozenset((*names, *(token.strip("<>[]/|~") for token in self.end_tokens)))

    @cached_property
    def result_prefixes(self) -> frozenset[str]:
        """The proper prefixes of `result_openers`."""
        return frozenset(opener[:size] for opener in self.result_openers for size in range(1, len(opener)))

    @cached_property
    def longest_result_opener(self) -> int:
        """The length of the longest of `result_openers`."""
        return max(map(len, self.result_openers))

    @cached_property
    def readable_answer_tags(self) -> frozenset[str]:
        """Opening answer tags without a `<`. They are plain text unless they enclose an answer."""
        return frozenset(opener for opener in self.answer_tags if "<" not in opener)

    def reasoning_closer(self, opener: str) -> str:
        """Return the closing tag for an opening reasoning tag."""
        closer = self.reasoning_tags.get(opener) or self.unlabelled_openers.get(opener)
        if closer is not None:
            return closer
        start = next(start for start in self.suffixed_tags if opener.startswith(start))
        return self.suffixed_tags[start] + opener[len(start) :]

    def suffixed_closer_start(self, tag: str) -> str:
        """Return the part of a closing tag before its suffix; empty if the tag has no suffix."""
        return next((start for start in self.suffixed_tags.values() if tag.startswith(start)), "")

    @cached_property
    def turn_ends(self) -> tuple[str, ...]:
        """The tokens that end a turn, the opening tags of results, and the closing reasoning tags in `lone_closers`.

        They are recognized even inside an unfinished call.
        """
        return (*self.end_tokens, *self.result_tags, *self.lone_closers)

    @cached_property
    def begun_turn_ends(self) -> frozenset[str]:
        """All proper prefixes of the texts in `turn_ends`."""
        return beginnings(self.turn_ends)

    @cached_property
    def turn_end(self) -> re.Pattern[str]:
        """A pattern that matches any of the `turn_ends` that begin with `<`."""
        tags = (tag for tag in sorted(self.turn_ends, key=len, reverse=True) if tag[0] == "<")
        return re.compile("|".join(map(re.escape, tags)))

    @cached_property
    def _ends(self) -> re.Pattern[str]:
        """A pattern that matches the end-of-turn tokens at the end of a text, with the white space around them."""
        return re.compile(rf"\s*+(?:(?:{'|'.join(map(re.escape, self.end_tokens))})\s*+)++\Z")

    def end_of_turn(self, text: str) -> int:
        """Return the offset of the end-of-turn tokens at the end of a text; if there are none, the text's length."""
        begin = max(0, len(text) - MAX_END)
        match = self._ends.search(text, begin)
        return match.start() if match is not None else len(text)

    @cached_property
    def template_closer(self) -> re.Pattern[str]:
        """A pattern that matches any of `template_closers`, and closing tags with a suffix."""
        literals = map(re.escape, sorted(self.template_closers, key=len, reverse=True))
        return re.compile(f"{'|'.join(literals)}|{self.suffixed_closer.pattern}")

    @cached_property
    def longest_template_closer(self) -> int:
        """The length of the longest text that `template_closer` matches."""
        return max(*map(len, self.template_closers), *(len(start) + 33 for start in self.suffixed_tags.values()), 0)

    @cached_property
    def suffixed_closer(self) -> re.Pattern[str]:
        """A pattern that matches a closing reasoning tag with a suffix, such as `</think:abc>`."""
        starts = "|".join(map(re.escape, self.suffixed_tags.values())) or "(?!)"
        return re.compile(rf"(?:{starts}){TAG_SUFFIX}>")


def reply_markers() -> ReplyMarkers:
    """Return the markers of the currently registered dialects."""
    return _markers_of(edition())


@lru_cache(maxsize=16)  # for the process, and for some clients with dialects of their own
def _markers_of(edition: Edition) -> ReplyMarkers:
    del edition  # only part of the key: a registered dialect may have the name of a removed one
    return ReplyMarkers()
