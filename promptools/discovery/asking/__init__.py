"""What the model is asked: intents, questions about its tools, and reasoning from logs of agents."""
