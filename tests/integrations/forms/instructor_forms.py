"""instructor's modes."""

import instructor
import openai
from weather_form import KEY, QUESTION, Weather


def way(mode):
    def ask(address, model, stream):
        with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
            question = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_retries": 0}
            patched = instructor.from_openai(client, mode=mode)
            if stream:
                return [*patched.create_partial(response_model=Weather, **question)][-1]
            return patched.create(response_model=Weather, **question)

    return ask


WAYS = {f"`{mode.name}`": way(mode) for mode in (instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA)}
CALLS = {f"`{mode.name}`": way(mode) for mode in (instructor.Mode.TOOLS, instructor.Mode.RESPONSES_TOOLS)}
