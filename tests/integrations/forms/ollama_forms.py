"""Ollama's SDK, with a schema and without; what it gives is read as its documentation does."""

import ollama
from weather_form import QUESTION, Weather


def way(form):
    def ask(address, model, stream):
        with ollama.Client(host=address) as client:
            question = [{"role": "user", "content": QUESTION}]
            reply = client.chat(model=model, messages=question, format=form, stream=stream)
            parts = reply if stream else [reply]
            return Weather.model_validate_json("".join(part.message.content for part in parts))

    return ask


WAYS = {"`format`: a schema": way(Weather.model_json_schema()), '`format="json"`': way("json")}
