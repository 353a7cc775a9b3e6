"""The files of a batch: what is read and written where, the log that a run goes on from, and what the input has."""
