"""The parts of the benchmark of batches: replies that are read again, requests to a server, and how runs are measured."""
