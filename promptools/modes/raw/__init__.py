"""Raw mode, and what modes need that write a whole prompt: a template that is rendered here, the room for an answer."""
