"""The tools and questions of the checks. No question is contained in another, so that scripted models know them."""

from __future__ import annotations

from typing import Any


def tool(name: str, description: str) -> dict[str, Any]:
    """Return a tool that takes a city."""
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Name of the city."}},
        "required": ["city"],
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = tool("get_weather", "Return the current weather of a city.")
TIME = tool("get_time", "Return the current local time of a city.")
DOTTED = tool("weather.now", "Return the current weather of a city.")

PLAIN = "Say hello in one word."
CALL = "What is the weather in Paris right now? Look it up with get_weather."
INSIST = "Call get_weather with the city Paris. Answer with the call alone."
TWO_CALLS = "How is the weather in Paris and in Rome? Call get_weather once for each, both calls in one answer."
NO_CALL = "Thank you, that is all."
DOTTED_CALL = "What does weather.now return for Paris? Call it."
SENTENCE = "Describe Paris in one short sentence."
FIRST_TURN = "I have two questions."
SECOND_TURN = "How many days has a week?"
CODE = "The code word is heron."
ASK_CODE = "What is the code word? Answer with that word."
RESULT = "Paris: 18 degrees and fog"
THINK = "How many letters has the word river?"
CHOICES = "Name a colour."
CONTINUED = "One, two, three,"

SCHEMA = {
    "type": "object",
    "properties": {"probed_city": {"type": "string", "maxLength": 20}, "probed_size": {"enum": ["small", "large"]}},
    "required": ["probed_city", "probed_size"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "probed", "schema": SCHEMA, "strict": True}}
