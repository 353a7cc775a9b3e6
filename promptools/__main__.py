"""`python -m promptools`: the command line."""

import sys

from promptools.cli import main

if __name__ == "__main__":
    sys.exit(main())
