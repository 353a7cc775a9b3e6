"""Runners of public benchmarks: tasks in, graded answers out; resumable, with intervals and costs."""
