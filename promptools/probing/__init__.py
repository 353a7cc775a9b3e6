"""Find out what a server and its model really do by sending them requests: checks, findings, and recommendations.

A check is a generator that yields requests and evaluates the answers; it does no I/O. `probe_runner` sends the requests
over HTTP. The checks make the model generate text. Detecting a server's software generates no text, and is done in
`promptools.exchange` and `promptools.profiles`.
"""
