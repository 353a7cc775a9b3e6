"""SWE-bench: an agent changes a repository so that an issue is resolved; the `swebench` package grades the changes."""

from promptools.evaluation.swe.swe_instances import SweInstance, read_instances
from promptools.evaluation.swe.swe_solver import SweSolver

__all__ = ["SweInstance", "SweSolver", "read_instances"]
