"""Parts of `promptools serve`: what it prints as it starts, and the reload of its config."""
