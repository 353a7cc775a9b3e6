"""Raw replies kept in files with everything needed to parse them again, and the comparison of old and new results.

A row is one attempt: `recorder` makes it from what an observer sees, and writes it while exchanges run; `replay` reads
it with the readers of the modes, and compares.
"""

from promptools.recording.recorder import Recorder
from promptools.recording.replay import RecordedRow, read_rows

__all__ = ["RecordedRow", "Recorder", "read_rows"]
