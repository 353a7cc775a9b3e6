"""The parts of the benchmark of batches: replies that are read again, requests, and how runs are measured."""
