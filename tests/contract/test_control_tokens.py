"""Control tokens next to a call, and at the end of the turn, are no text; in prose, and without a call, they stay."""

from __future__ import annotations

import pytest
from casebook import feed, tiled

from promptools import Tools, dialects, parse
from promptools.types import Call

TOOL = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS = Tools.prepare([TOOL])
OSLO = Call("call00001", "get_weather", {"city": "Oslo"}, '{"city": "Oslo"}')
HERMES = dialects.get("hermes").render_calls([OSLO])
CHATML = "<|im_start|>assistant\n"
HEADERS = [
    CHATML,
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<start_of_turn>model\n",
    "<|assistant|>",
    "<｜Assistant｜>",
    "<|turn>model\n",
    "]~b]ai\n",
]
AROUND = [
    ("", "<|im_end|>\n", ""),
    ("", "\n<|im_end|><|endoftext|>", ""),
    ("", "<|im_end|>\n<|im_start|>assistant\n", ""),
    ("", "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", ""),
    ("", "<|some_token|>", ""),
    ("", "<|im_end", ""),
    ("Look.\n", "<|im_end|>", "Look."),
]


@pytest.mark.parametrize("name", dialects.names())
def test_tokens_after_a_call(name: str) -> None:
    call = dialects.get(name).render_calls([OSLO])
    for before, after, content in AROUND:
        text = before + call + after
        reply = parse(text, TOOLS, expect=name, finish_reason="stop")
        assert (len(reply.calls), reply.content, reply.reasoning) == (1, content, ""), text
        events, pieced = feed([text[at : at + 3] for at in range(0, len(text), 3)], TOOLS, "stop", expect=name)
        assert (len(pieced.calls), pieced.content) == (1, content), text
        tiled(events, text)


@pytest.mark.parametrize("header", HEADERS)
def test_the_header_of_the_model_s_own_turn(header: str) -> None:
    between = header[len(header.rstrip()) :] or "\n"
    for text, content in (
        (header + HERMES, ""),
        (f"Look.\n{header}{HERMES}", "Look."),
        (f"Look.<|im_end|>\n{header}{HERMES}", "Look."),
        (f"{HERMES}{header}Done.", "Done."),
        (f"Look.\n{HERMES}<|im_end|>\n{header}Done.", f"Look.{between}Done."),
        (f"{HERMES}<|im_end|>\n{header}{HERMES}<|im_end|>\n{header}", ""),
        (f"Done.<|im_end|>\n{header}", "Done."),
    ):
        for pieces in ([text], [*text]):
            events, reply = feed(pieces, TOOLS, "stop")
            assert reply.content == content, text
            assert len(reply.calls) == text.count(HERMES)
            tiled(events, text)


@pytest.mark.parametrize(
    "text",
    [
        "The token <|im_end|> ends a turn.",
        f"ChatML begins a turn with {CHATML.strip()} and a line break.",
        "It is called <|some_token|>",
        "ChatML:\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello",
        "Gemma writes <start_of_turn>model at the beginning.",
        "Use <|assistant|>",
        "`<|im_start|>assistant`",
        "```\n<|im_start|>assistant\n```",
        "a <| b |> c <|",
    ],
)
def test_in_prose_they_stay(text: str) -> None:
    for pieces in ([text], [*text]):
        events, reply = feed(pieces, TOOLS, "stop")
        assert (reply.content, reply.calls) == (text, ())
        tiled(events, text)


def test_a_sentence_after_a_call_may_be_about_one() -> None:
    said = "<|some_token|> is a token, and <|other|> too."
    assert parse(f"{HERMES}\n{said}", TOOLS).content == said


@pytest.mark.parametrize("ending", ["<|im_end|>", "\n<|im_end|>\n", "<|im_end|></think>"])
@pytest.mark.parametrize("opener", ["<think>", "<think>\n"])
def test_a_thought_does_not_end_in_one(opener: str, ending: str) -> None:
    text = f"{opener}Hm.{ending}"
    for pieces in ([text], [*text]):
        events, reply = feed(pieces, TOOLS, "stop")
        assert (reply.reasoning, reply.content) == ("Hm.", "")
        tiled(events, text)


def test_a_thought_may_be_about_one() -> None:
    text = "<think>So <|im_end|> ends a turn.</think>Yes."
    assert parse(text, TOOLS).reasoning == "So <|im_end|> ends a turn."
