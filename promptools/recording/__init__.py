"""Recordings: raw replies in files, with everything that is needed to parse them again and compare the results.

A row is one attempt. `recorder` makes rows from what an observer sees, and writes them while exchanges run. `replay`
reads rows again with the readers of the modes, and compares the new results with the recorded results.
"""

from promptools.recording.recorder import Recorder
from promptools.recording.replay import RecordedRow, read_rows

__all__ = ["RecordedRow", "Recorder", "read_rows"]
