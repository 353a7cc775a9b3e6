"""Commands that need no server: parse a reply, render a prompt, list dialects, read and write Harmony."""
