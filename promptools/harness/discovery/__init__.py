"""Which tools a model was trained on: sampled without definitions, tallied, described, and compared with its words."""
