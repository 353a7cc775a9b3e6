litellm.suppress_debug_info = True  # it prints a notice where it does not know what a model costs
chunks = list(litellm.completion(**options, stream=True))
print(litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls[0].function)
