"""The client's side of OpenAI's Responses API: the responses, and those that are stored."""
