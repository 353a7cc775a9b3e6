"""The work of a batch on the nodes of a Ray cluster, through Ray Data.

`stream_chunks` is the only user of Ray Data: items that one task reads, an operation on them on any node, and the
results as they come. `ClusterAnswering` sends requests by it, and `reparse_on_cluster` reads logged replies.
"""
