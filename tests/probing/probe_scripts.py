"""What scripted models answer to the probe's questions: as a model that follows its template, and knows the answers."""

from promptools.lab.script import ScriptedReply
from promptools.lab.weather import prompt_mode_phrase
from promptools.probing import questions

FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
WORDS = {
    questions.PLAIN: "Hello.",
    questions.NO_CALL: "You are welcome.",
    questions.SENTENCE: "Paris is a large city on the Seine.",
    questions.SECOND_TURN: "Seven.",
    questions.ASK_CODE: "heron",
    questions.RESULT: "It is foggy in Paris, at 18 degrees.",
    questions.THINK: "Five.",
    questions.CHOICES: "Blue.",
    "One, two, three,": " four, five",
}


def call(name: str = "get_weather", city: str = "Paris") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


def hermes() -> list[ScriptedReply]:
    """Lines of a model with Hermes tags."""
    return [
        *(ScriptedReply(cue, says) for cue, says in WORDS.items()),
        *(ScriptedReply(cue, call()) for cue in (questions.CALL, questions.INSIST)),
        ScriptedReply(questions.CALL, FENCED, setting=prompt_mode_phrase()),
        ScriptedReply(questions.TWO_CALLS, f"{call()}\n{call(city='Rome')}"),
        ScriptedReply(questions.DOTTED_CALL, call("weather.now")),
        ScriptedReply(None, "I do not know."),
    ]
