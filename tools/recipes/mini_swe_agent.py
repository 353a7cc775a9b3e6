"""mini-swe-agent, whose inspector opens our trajectories, without what only its own agents need.

What is left out are the clients of models and the loader of data sets, which take half a gigabyte.
"""

from __future__ import annotations

from recipes.recipe import Recipe

LEFT_OUT = ("datasets", "litellm", "openai")

MINI_SWE_AGENT = Recipe(
    ("mini-swe-agent==2.4.6",), overrides=tuple(f"{name}; sys_platform == 'never'" for name in LEFT_OUT)
)
