"""The logger `promptools`. It is silent until an app configures logging: not even warnings go to stderr by themselves.

The levels are described in docs/reference/logging.md. A message does not name the logger, and holds no text of a user
or a model, and no key.
"""

import logging

NAME = "promptools"

log = logging.getLogger(NAME)
log.addHandler(logging.NullHandler())  # else Python's handler of last resort prints warnings to stderr
