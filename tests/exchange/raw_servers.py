"""Servers that render their own chat template and continue a prompt, as answers for the scripted pump."""

import json
from pathlib import Path

from scripted import SSE, Answer, event, target

TEMPLATE = Path(__file__).with_name("chatml.jinja")
PROMPT = """\
<|im_start|>system
get_weather
<|im_end|>
<|im_start|>user
Weather in Paris?<|im_end|>
<|im_start|>assistant
"""
"""What that template makes of `ask(WEATHER)`."""
END = "<|im_end|>\n<|im_start|>"
"""How that template goes from one turn to the next."""
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
PARIS = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
USAGE = {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19}
LINES = (("content-type", "application/x-ndjson"),)
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'

FACTS = {
    "llamacpp": {"template_endpoint": "llamacpp", "raw": "llamacpp"},
    "tokenize": {"template_endpoint": "tokenize", "raw": "completions", "raw_ids": True},
    "ollama": {"template_endpoint": "ollama", "raw": "generate", "wire": "ollama"},
    "file": {"raw": "completions", "chat_template": str(TEMPLATE)},
}
SERVERS = ("llamacpp", "tokenize", "ollama")
"""Those that render their own template."""
RENDER_PATHS = {"llamacpp": "/apply-template", "tokenize": "/tokenize", "ollama": "/api/chat"}
RAW_PATHS = {"llamacpp": "/completion", "tokenize": "/v1/completions", "ollama": "/api/generate"}
RAW_PATHS["file"] = RAW_PATHS["tokenize"]


def server(name="llamacpp", modes=("raw",), **facts):
    """Make a target of a kind of server."""
    return target(**{**FACTS[name], "modes": modes, "family": "qwen", "context": 32_768, **facts})


def ids_of(text):
    return [ord(letter) for letter in text]


def rendered(kind, text=PROMPT):
    """The server's answer to the request to render, as a list: empty where the template is a file."""
    if kind == "file":
        return []
    if kind == "tokenize":
        strings = [letter.translate({32: "Ġ", 10: "Ċ"}) for letter in text]
        body = {"count": len(text), "max_model_len": 8192, "tokens": ids_of(text), "token_strs": strings}
    elif kind == "ollama":
        body = {"model": "m", "message": {"role": "", "content": ""}, "_debug_info": {"rendered_template": text}}
    else:
        body = {"prompt": text}
    return [Answer(200, json.dumps(body).encode())]


def said(kind, text=CALL, finish="stop", **more):
    """A whole reply of the raw endpoint."""
    if kind == "llamacpp":
        body = {"index": 0, "content": text, **llama_end(finish), **more}
    elif kind == "ollama":
        ends = {"done_reason": finish, "prompt_eval_count": 10, "eval_count": 9}
        body = {"model": "m", "created_at": "2026-11-21T08:00:00Z", "response": text, "done": True, **ends, **more}
    else:
        choice = {"index": 0, "text": text, "finish_reason": finish, **more}
        body = {"id": "cmpl-1", "created": 7, "model": "m", "choices": [choice], "usage": USAGE}
    return Answer(200, json.dumps(body).encode())


def llama_end(finish="stop"):
    counts = {"tokens_predicted": 9, "tokens_evaluated": 10}
    return {"stop": True, "model": "m", "stop_type": "limit" if finish == "length" else "eos", **counts}


def streamed(kind, text=CALL, finish="stop", cut=0, size=5):
    """A reply of the raw endpoint as a stream, `size` characters at a time."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    if kind == "llamacpp":
        events = [{"index": 0, "content": piece, "stop": False} for piece in pieces]
        events.append({"index": 0, "content": "", **llama_end(finish)})
        return Answer(200, b"".join(map(event, events)), SSE, cut)
    if kind == "ollama":
        lines = [{"model": "m", "response": piece, "done": False} for piece in pieces]
        ends = {"done_reason": finish, "prompt_eval_count": 10, "eval_count": 9}
        lines.append({"model": "m", "response": "", "done": True, **ends})
        return Answer(200, b"".join(json.dumps(line).encode() + b"\n" for line in lines), LINES, cut)
    chunks = [{"choices": [{"index": 0, "text": piece, "finish_reason": None}]} for piece in pieces]
    chunks.append({"choices": [{"index": 0, "text": "", "finish_reason": finish}]})
    chunks.append({"choices": [], "usage": USAGE})
    body = b"".join(event({"id": "cmpl-1", "created": 7, "model": "m", **chunk}) for chunk in chunks)
    return Answer(200, body + b"data: [DONE]\n\n", SSE, cut)


def prompt_of(seen, at=-1):
    """The prompt that was sent to a raw endpoint, as text."""
    prompt = seen.bodies[at]["prompt"]
    return prompt if isinstance(prompt, str) else "".join(map(chr, prompt))


def paths(seen):
    return [request.url.removeprefix("http://server") for request in seen.sent]


def modes(seen):
    return [(attempt.mode, attempt.outcome) for attempt in seen.reply.trace.attempts]
