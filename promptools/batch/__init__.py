"""Whole files at once: requests in OpenAI's batch file format, and logged replies.

`RequestAnswerer` turns one request into one result, and knows neither files nor other requests. `RequestPool` keeps as
many of them under way as the server allows; `BatchJob` reads the requests, keeps the results, and writes the output.
`reparse` reads logged replies again, and `reparse_columns` those of a data frame.
"""

from promptools.batch.columns.column_reparsing import reparse_columns, reparse_series, reparsed_dtype
from promptools.batch.columns.result_schemas import batch_schema, reparsed_schema

__all__ = ["batch_schema", "reparse_columns", "reparse_series", "reparsed_dtype", "reparsed_schema"]
