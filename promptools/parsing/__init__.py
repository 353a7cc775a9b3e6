"""The types that make up a reply (events, parts, messages), the search for markers, and the emitter of events.

No module of this package depends on a dialect. The calls are found by `promptools.engine`.
"""
