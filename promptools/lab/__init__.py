"""Scripted models whose weights are computed instead of trained, and real inference servers to run them.

With these models, the demo and the tests use a real server without downloading a model. `script` defines the replies of
a model, and `scripted_model` turns them into a tiny Llama in a GGUF file. `llamacpp_server` runs llama.cpp's own HTTP
server (from the wheel `xllamacpp`) on such a file or any other GGUF file. `server_process` starts and stops a server.
Sampling, chat templates, grammars, parsers and errors are the server's own. Only the text that the model generates is
scripted.

In a checkout, `tests/rig` also runs Ollama and vLLM on such models. The package needs the extra
`promptools-compat[demo]`.
"""
