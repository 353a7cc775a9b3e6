"""What comes back from a server in any mode: deltas to calls, text and reasoning, judged before they go on."""
