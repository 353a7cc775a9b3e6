"""What proxies share through Redis: stored responses, open circuits of the breaker, and counts of limited requests."""
