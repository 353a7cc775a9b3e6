"""Raw replies kept in files, with what is needed to parse them again, and the comparison with what was read of them.

A row is one attempt: `recorder` makes it of what an observer sees, and writes it while exchanges run; `replay` reads it
with the readers of the modes, and compares.
"""

from promptools.recording.recorder import Recorder
from promptools.recording.replay import RecordedRow, read_rows

__all__ = ["RecordedRow", "Recorder", "read_rows"]
