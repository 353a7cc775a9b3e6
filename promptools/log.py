"""The logger `promptools`. It is silent until an app configures logging; even warnings do not go to stderr by default.

docs/reference/logging.md describes the levels. Messages do not name the logger, and contain neither API keys nor text
of a user or a model.
"""

import logging

NAME = "promptools"

log = logging.getLogger(NAME)
log.addHandler(logging.NullHandler())  # otherwise Python's handler of last resort prints warnings to stderr
