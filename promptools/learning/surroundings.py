"""Learn what a template writes around calls: the ends of turns, the tags of reasoning, and results.

None of this affects how calls themselves are written. Only markers that look like tokens are learned. The marker before
results is learned only if neither an answer without calls nor a turn with calls contains it.
"""

from __future__ import annotations

from typing import Final

from promptools.dialects.reply_markers import reply_markers
from promptools.learning.candidates import ONE, Table
from promptools.learning.renderings import ANSWER, RESULT, Frame, Renderings, Variant, message_of, result_of
from promptools.parsing.special_tokens import is_only_tokens

THOUGHT: Final = "Zqthought"
REASONING_KEYS: Final = ("reasoning_content", "reasoning", "thinking")
"""The keys of a message that hold its reasoning: in most templates, in vLLM's messages, and in gpt-oss's template."""


def learn_surroundings(renderings: Renderings, frame: Frame, variant: Variant) -> Table:
    """Return the table keys for end tokens, results and reasoning."""
    return {
        **_end_tokens(renderings, frame),
        **_results(renderings, variant),
        **_reasoning_tags(renderings, variant),
    }


def opens_reasoning(renderings: Renderings) -> str:
    """Return the reasoning tag with which the prompt ends; empty if it does not end with one."""
    prompt = (renderings.render([], prompt=True) or "").rstrip()
    return next((tag for tag in reply_markers().reasoning_tags if prompt.endswith(tag)), "")


def _end_tokens(renderings: Renderings, frame: Frame) -> Table:
    """Return the table key for the token that ends a turn with calls; empty if there is none or it is already known."""
    token = _token_after(renderings, frame.after)
    known = reply_markers().end_tokens
    ends = bool(token) and is_only_tokens(token) and is_only_tokens(frame.after)  # and no other turn follows
    return {"end_tokens": [token]} if ends and token not in known else {}


def _results(renderings: Renderings, variant: Variant) -> Table:
    """Return the table keys for tool results; empty if no usable marker comes before a result.

    `result_openers` has the beginning of that marker. If a closing marker follows a result, `result` has the template
    of a result, and `stop` has the same beginning as `result_openers`.
    """
    rendering = renderings.render([message_of([ONE], variant), result_of(ONE, RESULT)], prompt=True)
    plain = renderings.of_turn({"role": "assistant", "content": ANSWER}, variant)
    if rendering is None or plain is None or RESULT not in rendering:
        return {}
    at = rendering.rindex(RESULT)
    before, after = rendering[:at], rendering[at + len(RESULT) :]
    opener, closer = _token_before(renderings, before), _token_after(renderings, after)
    # Muse Glimmer: `<tool_output name="get_weather">`. Without a word, the rest is the beginning of any marker.
    begins = opener.partition(ONE.name)[0].partition(ONE.id)[0].rstrip()
    has_word = begins == opener or any(map(str.isalpha, begins))
    calls = renderings.of_calls([ONE], variant) or ""
    if not opener or not has_word or begins in plain or begins in calls:
        return {}
    keys: Table = {"result_openers": [begins]}
    if closer and closer not in plain:
        space, end_space = before[len(before.rstrip()) :], after[: len(after) - len(after.lstrip())]
        named = opener.replace(ONE.name, "{name}").replace(ONE.id, "{id}")
        keys |= {"result": f"{named}{space}{{content}}{end_space}{closer}", "stop": [begins]}
    return keys


def _reasoning_tags(renderings: Renderings, variant: Variant) -> Table:
    """Return the table key for the tags around reasoning; empty if there are no tags, or they are already known."""
    for key in REASONING_KEYS:
        rendering = renderings.of_calls([ONE], variant, **{key: THOUGHT})
        if rendering is None or THOUGHT not in rendering:
            continue
        at = rendering.rindex(THOUGHT)
        opener = _token_before(renderings, rendering[:at])
        closer = _token_after(renderings, rendering[at + len(THOUGHT) :])
        answer = renderings.of_turn({"role": "assistant", "content": ANSWER}, variant) or ""
        known = opener in reply_markers().reasoning_tags or opener in answer
        if opener and closer and opener != closer and not known:
            return {"reasoning_tags": {opener: closer}}
        return {}
    return {}


def _token_before(renderings: Renderings, text: str) -> str:
    """Return the marker at the end of a text, ignoring white space; empty if there is none."""
    bare = text.rstrip()
    return next((bare[start:] for start, end in renderings.tokens_in(bare) if end == len(bare)), "")


def _token_after(renderings: Renderings, text: str) -> str:
    """Return the marker at the beginning of a text, ignoring white space; empty if there is none."""
    bare = text.lstrip()
    return next((bare[:end] for start, end in renderings.tokens_in(bare) if start == 0), "")
