"""Who may use the proxy, and how much: host names, API keys and limits."""
