"""Plugin for vLLM's own Python, where promptools is not installed: this package imports nothing of it.

`lines` selects the reply, `reply` tracks its progress, `words` makes the engine generate it, and `models` creates the
models that do. The parent folder goes on PYTHONPATH, so that vLLM finds `scripted.words:Words`.
"""
