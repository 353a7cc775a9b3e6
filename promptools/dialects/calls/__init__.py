"""What a call is in any dialect: its envelope, how it is resolved against tools, how its arguments stream."""
