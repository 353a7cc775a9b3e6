"""Whole files at once: requests in OpenAI's batch file format, and logged replies.

`RequestAnswerer` turns one request into one result, and knows neither files nor other requests. `RequestPool` keeps as
many of them under way as the server allows; `BatchJob` reads the requests, keeps the results, and writes the output.
`reparse` reads logged replies again.
"""
