"""Control tokens that are content, because a model quotes them."""
