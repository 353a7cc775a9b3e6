"""Ollama and vLLM on the scripted models of `promptools.lab`, for the tests and the benchmarks.

`ollama` and `vllm` start the servers, `guard` ends all processes that they start. The programs themselves are installed
by `tools/environments.py`. `modelfiles` has the templates of Ollama's models, `inside_vllm` the plugin that makes vLLM
say what a script says.
"""
