"""Commands for agents and benchmarks: let a model work with tools, find out which tools it knows, grade its answers."""
