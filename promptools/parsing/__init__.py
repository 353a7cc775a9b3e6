"""What a reply is made of: events, parts, messages, the search for markers, and the emitter that makes events of text.

Nothing here knows a dialect; what finds the calls is in `promptools.engine`.
"""
