"""What runs inside vLLM's own Python, where promptools is not installed: this package, and nothing that it imports.

`lines` chooses what is said, `reply` follows it, `words` makes the engine say it, and `models` makes the models that
say it. The folder above goes on PYTHONPATH, so that vLLM finds `scripted.words:Words`.
"""
