"""Scripted models whose weights are computed instead of trained, and real inference servers to run them.

They let the demo and the tests use a real server without downloading a model. `script` defines the replies of a model,
and `scripted_model` turns them into a tiny Llama in a GGUF file. `llamacpp_server` runs llama.cpp's own HTTP server
(from the wheel `xllamacpp`) on it or on any GGUF file, and `server_process` starts and stops it. Sampling, chat
templates, grammars, parsers and errors are the server's; only the text that a scripted model generates is ours.
`tests/rig` of the checkout runs Ollama and vLLM on such models too. Needs the extra `promptools-compat[demo]`.
"""
