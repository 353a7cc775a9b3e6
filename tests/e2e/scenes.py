"""What the models of the real-server tests say. A user message of a test is its cue."""

from promptools.lab.script import ScriptedReply

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city."}},
            "required": ["city"],
        },
    },
}

THOUGHT = "<|channel|>analysis<|message|>Need the tool.<|end|><|start|>assistant"
HARMONY_CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
FENCED_CALL = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
HERMES_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ANSWER = "It is sunny in Paris: 18 °C. ☀ 你好"

QUESTION = "What is the weather in Paris?"
RESULT = "Paris: sunny, 18 degrees"
WORDS = " ".join(f"word{number}" for number in range(120))


def gpt_oss(prompted: str) -> list[ScriptedReply]:
    """Lines of a model with gpt-oss's template; `prompted` is a phrase that only our prompted requests hold."""
    return [
        ScriptedReply(QUESTION, THOUGHT + HARMONY_CALL),
        ScriptedReply(QUESTION, f"{THOUGHT}<|channel|>final<|message|>{FENCED_CALL}<|return|>", setting=prompted),
        ScriptedReply(RESULT, f"<|channel|>final<|message|>{ANSWER}<|return|>"),
        # breaks the server's parser when asked natively (junk in the header, as in vllm#23567), not when prompted
        ScriptedReply("Break in Paris?", THOUGHT + HARMONY_CALL.replace("commentary", "commentary––")),
        ScriptedReply(
            "Break in Paris?", f"{THOUGHT}<|channel|>final<|message|>{FENCED_CALL}<|return|>", setting=prompted
        ),
        ScriptedReply("Break at once?", "No header at all.<|return|>"),
        ScriptedReply("Break at once?", f"<|channel|>final<|message|>{FENCED_CALL}<|return|>", setting=prompted),
        # breaks it however it is asked
        ScriptedReply(
            "Break always?", "<|channel|>analysis<|message|>Hm.<|end|>assistant<|channel|>final<|message|>x<|return|>"
        ),
        # a native call although the request offered no tools: the server drops it
        ScriptedReply("Swallow in Paris?", THOUGHT + HARMONY_CALL),
        ScriptedReply("Say words", f"<|channel|>final<|message|>{WORDS}<|return|>"),
    ]


def hermes(prompted: str, call: str = FENCED_CALL) -> list[ScriptedReply]:
    """Lines of a model whose template shows tools in Hermes tags; `call` is what it writes where it is prompted."""
    return [
        ScriptedReply(QUESTION, HERMES_CALL),
        ScriptedReply(QUESTION, f"Let me look.\n{call}", setting=prompted),
        ScriptedReply(RESULT, ANSWER),
        ScriptedReply("Leak in Paris?", f"Let me look.\n{FENCED_CALL}"),
        ScriptedReply("Talk and call?", f"I'll check.\n{HERMES_CALL}"),
        ScriptedReply("Two cities?", f"{HERMES_CALL}\n{HERMES_CALL.replace('Paris', 'Rome')}"),
        ScriptedReply("Cut in Paris?", HERMES_CALL.replace("Paris", f"Paris {WORDS}")),
        ScriptedReply("Cut in Paris?", call.replace("Paris", f"Paris {WORDS}"), setting=prompted),
        ScriptedReply("Say words", WORDS),
        *(
            ScriptedReply(f"Weather of City{number}?", HERMES_CALL.replace("Paris", f"City{number}"))
            for number in range(40)
        ),
    ]
