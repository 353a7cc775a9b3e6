"""`make fuzz`: random inputs for some minutes, one process a core, and what they find.

    PYTHONPATH=tests:tests/helpers python -m fuzz --seconds 600 --seed 7 --dialect hermes

Input number n of a seed is the same everywhere: what was found once is found again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from pathlib import Path

from fuzz.runner import EVERYTHING, Found, Task, work
from fuzz.seeds import FOLDER


def main() -> int:
    """Run the processes, add up what they found, and print it."""
    options = _arguments()
    chosen = tuple(options.dialect.split(",")) if options.dialect else EVERYTHING
    print(f"seed {options.seed}, {options.processes} processes, {options.seconds} s", flush=True)
    tasks = [
        Task(number, options.processes, options.seed, options.seconds, chosen, options.folder)
        for number in range(options.processes)
    ]
    start = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        everything = pool.map(work, tasks, chunksize=1)
    return _summary(everything, time.monotonic() - start)


def _summary(everything: list[Found], seconds: float) -> int:
    executions: Counter[str] = sum((part.executions for part in everything), Counter())
    kinds: Counter[tuple[str, str]] = sum((each.kinds for each in everything), Counter())
    print(f"\n{executions.total()} executions, {executions.total() / seconds:.0f} a second; by dialect:")
    print("  " + ", ".join(f"{name} {count}" for name, count in executions.items()))
    for (name, place), count in kinds.most_common():
        print(f"  {count} x {name} {place}")
    paths = sorted({path for each in everything for path in each.kept})
    print("\n".join(["findings:", *paths]) if paths else "no findings")
    return 1 if paths else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description="Damage replies of every dialect, and see what breaks.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", default=os.urandom(4).hex(), help="any word; by default another one each time")
    parser.add_argument(
        "--dialect", default="", help="names of dialects, with commas between them; also: upstream, request"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=FOLDER / "open", help="where findings are kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
