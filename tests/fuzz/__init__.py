"""The fuzzer: random replies of every dialect, damaged at random, and what must hold for each of them.

`grammar` writes a reply, `mutations` damages it, `properties` says what holds for any, `upstream` does the same one
level up, with the answers of a server; `minimise` makes a finding small, `seeds` keeps it, and `__main__` is
`make fuzz`. An input is made from its seed alone: the same one on every machine and every version of Python.
"""
