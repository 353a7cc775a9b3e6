"""Calls whose arguments come one by one as bare text: keys and values between tags, elements, lines.

`tagged` takes the text piece by piece, `gathered` collects one call and types its values by the schema; `pairs` and
`elements` are what dialects take.
"""
