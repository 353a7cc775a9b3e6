"""Which tools a model was trained on: sampled without definitions, counted, described by the model, and compared."""
