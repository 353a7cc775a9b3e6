"""The program that runs the code of the tool `python`. Its source is passed to a Python interpreter in the sandbox.

It needs only the standard library of Python 3.7 or later. Each line that it reads is a JSON object with `code` and
`mark`, an end marker. When the code has ended, the program writes the end marker, followed by 1 if the code failed,
else by 0. The code has an empty standard input, because requests arrive on a separate file descriptor.
"""

import ast
import contextlib
import json
import linecache
import os
import sys
import traceback
from typing import Any, Dict, Iterable  # noqa: UP035  the Python that runs it may be old


def serve(requests: Iterable[str], names: Dict[str, Any]) -> None:  # noqa: UP006
    """Run the code of each request, until the requests end."""
    for number, line in enumerate(requests, 1):
        request = json.loads(line)
        failed = execute(request["code"], f"<cell {number}>", names)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os.write(1, f"{request['mark']}{int(failed)}\n".encode())


def execute(code: str, name: str, names: Dict[str, Any]) -> bool:  # noqa: UP006
    """Run code, and print the value of its last statement if that is an expression; return whether the code failed."""
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    try:
        tree = ast.parse(code, name)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, name, "exec"), names)  # noqa: S102  what the worker is for
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)  # noqa: S307  as above
            if value is not None:
                names["_"] = value
                print(repr(value))  # noqa: T201
    except SystemExit as end:
        return bool(end.code)
    except BaseException as error:  # noqa: BLE001  the interpreter outlives its code
        report(error)
        return True
    return False


def report(error: BaseException) -> None:
    """Print the traceback of an error, without the stack frames of this program."""
    frames = error.__traceback__
    while frames is not None and not frames.tb_frame.f_code.co_filename.startswith("<cell "):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)


def main() -> None:
    """Serve requests from a copy of standard input.

    Standard input itself is replaced by an empty one, which the code in the requests sees.
    """
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace", line_buffering=True)
    sys.path.insert(0, "")
    serve(requests, {"__name__": "__main__", "__builtins__": __builtins__})


if __name__ == "__main__":
    main()
