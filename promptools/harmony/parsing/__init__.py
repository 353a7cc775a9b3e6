"""Text or token ids of Harmony to messages, and to the items of a conversation."""
