"""Whole conversations with real models, tools simulated by rules, judged by rules: `suite/` holds them.

How many there are of each kind is fixed by `conversation.COUNTS`, and every third of a kind is held back: wordings are
chosen with the others, and those held back judge the choice.
"""
