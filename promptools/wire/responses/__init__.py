"""OpenAI's Responses API, which clients speak to us: requests decoded to Chat Completions, responses encoded."""
