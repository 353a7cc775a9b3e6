"""Raw endpoints, which continue a prompt as it is: no chat template before the model, no parser after it.

A table has the rule for each parameter of a Chat Completions body on each endpoint. Each endpoint has a module, which
encodes requests and decodes replies to the deltas of Chat Completions; their content is the model's raw text.
"""
