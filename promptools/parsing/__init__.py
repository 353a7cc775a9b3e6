"""What a reply is made of: events, parts and messages; also the search for markers, and the emitter of events.

No module here knows a dialect. The calls are found by `promptools.engine`.
"""
