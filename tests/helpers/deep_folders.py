"""Folders nested deeper than a path can be long, than a process may open files, and than Python recurses."""

import contextlib
import os
import shutil

NAME = "d"


@contextlib.contextmanager
def nested(root, depth):
    """Make `depth` folders, each in the one before, and yield a descriptor of the deepest.

    They are removed one by one: what removes pytest's temporary folders recurses.
    """
    folder = os.open(root, os.O_RDONLY)
    made = 0
    try:
        for made in range(1, depth + 1):  # noqa: B007  how far it came
            os.mkdir(NAME, dir_fd=folder)
            folder = _exchange(folder, NAME)
        yield folder
    finally:
        for _ in range(made):
            folder = _exchange(folder, "..")
            shutil.rmtree(NAME, dir_fd=folder)
        os.close(folder)


def _exchange(folder, name):
    other = os.open(name, os.O_RDONLY, dir_fd=folder)
    os.close(folder)
    return other
