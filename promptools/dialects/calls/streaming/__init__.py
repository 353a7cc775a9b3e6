"""How the arguments of a call are streamed while they are being written."""
