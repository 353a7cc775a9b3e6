"""Run public benchmarks: let a model or an agent solve tasks, grade the answers, and report results and costs.

A run that is interrupted can be resumed.
"""
