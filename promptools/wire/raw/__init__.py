"""Raw endpoints, which go on with a prompt as it is: no chat template before the model, no parser behind it.

`fates` says what becomes of each parameter of a Chat Completions body on each of them; there is one module an endpoint,
which writes its requests and reads its replies as the deltas of Chat Completions, the model's text being their content.
"""
