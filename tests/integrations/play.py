"""Run programs for each of several replacements in them: `play.py PROGRAM,PROGRAM OLD=NEW,OLD=NEW...`.

It is run by the Python of the frameworks' environment, which imports them once for all.
"""

import sys
from pathlib import Path

programs, *replacements = sys.argv[1:]
for replacement in replacements:
    for program in programs.split(","):
        text = Path(program).read_text(encoding="utf-8")
        for pair in replacement.split(","):
            text = text.replace(*pair.split("="))
        exec(compile(text, program, "exec", dont_inherit=True), {"__name__": "__main__"})
