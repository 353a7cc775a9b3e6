"""Runners of public benchmarks: they solve tasks and grade the answers, and report intervals and costs.

A run that is interrupted can be resumed.
"""
