"""The logger `promptools`. It is silent until an app configures logging: not even warnings go to stderr by default.

The levels are described in docs/reference/logging.md. Messages do not name the logger, and contain neither keys nor
text of a user or a model.
"""

import logging

NAME = "promptools"

log = logging.getLogger(NAME)
log.addHandler(logging.NullHandler())  # else Python's handler of last resort prints warnings to stderr
