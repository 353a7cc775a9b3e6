"""Anthropic's SDK: `parse` and its helper for streams."""

import anthropic
from weather_form import KEY, QUESTION, Weather


def messages(address, model, stream):
    with anthropic.Anthropic(base_url=address, api_key=KEY, max_retries=0) as client:
        request = {"model": model, "max_tokens": 1000, "messages": [{"role": "user", "content": QUESTION}]}
        if not stream:
            return client.messages.parse(output_format=Weather, **request).parsed_output
        with client.messages.stream(output_format=Weather, **request) as events:
            return events.get_final_message().parsed_output


WAYS = {"`messages.parse`": messages}
