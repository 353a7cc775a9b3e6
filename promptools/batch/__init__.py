"""Process whole files: requests in OpenAI's batch file format, and logged replies.

`RequestAnswerer` (`answering`) turns one request into one result, and knows neither files nor other requests.
`RequestPool` sends as many requests concurrently as the server allows. `BatchJob` reads the requests, keeps the
results, and writes the output. Requests are sent from this process or from a Ray cluster (`ray_cluster`). They go to
servers, or to an engine inside the sending process (`offline`). `reparse` reads logged replies again, and
`reparse_columns` does so for a data frame.
"""

from promptools.batch.columns import batch_schema, reparsed_schema
from promptools.batch.reparsing import reparse_columns, reparse_series, reparsed_dtype

__all__ = ["batch_schema", "reparse_columns", "reparse_series", "reparsed_dtype", "reparsed_schema"]
