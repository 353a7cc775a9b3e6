"""Anthropic's Messages API, `/v1/messages`: a client's requests decoded, responses, events and errors encoded."""
