"""Whole conversations with real models, from `suite/`. Rules simulate the tools, and rules judge the answers.

How many there are of each kind is fixed by `conversation.COUNTS`, and every third of a kind is held back: wordings are
chosen with the others, and the choice is judged by those held back.
"""
