"""What a reply is made of: events, parts, messages, the search for markers, and the emitter that makes events of text.

Nothing here knows a dialect; `promptools.engine` finds the calls.
"""
