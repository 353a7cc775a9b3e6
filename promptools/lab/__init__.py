"""Scripted models whose weights are computed instead of trained, and real inference servers to run them.

So the demo and the tests can use a real server without downloading a model. `script` defines the replies of a model,
`model_vocabulary` and `model_weights` turn them into a tiny Llama, and `gguf_model` writes that as a GGUF file.
`llamacpp_server` runs llama.cpp's own HTTP server (from the wheel `xllamacpp`) on it or on any GGUF file, and
`server_process` starts and stops it. Sampling, chat templates, grammars, parsers and errors are the server's own; only
the text of a scripted model is ours. `tests/rig` of the checkout runs Ollama and vLLM on such models too.
Needs the extra `promptools-compat[demo]`.
"""
