"""Find out with requests what a server and its model really do: checks, findings, and recommendations.

A check is a generator that yields requests and judges the answers; it does no I/O. `probe_runner` performs them over
HTTP. These checks ask for tool calls; detecting which software a server is, which generates nothing, is in
`promptools.exchange` and `promptools.profiles`.
"""
