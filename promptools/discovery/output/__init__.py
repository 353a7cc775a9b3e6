"""What a discovery writes: a page, plots, and a tool set."""
