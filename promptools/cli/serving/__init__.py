"""Parts of `promptools serve`: what it prints, the HTTP server with its drain, worker processes, reloads."""
