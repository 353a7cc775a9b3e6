"""Run public benchmarks: let a model or an agent solve tasks, grade the answers, and report intervals and costs.

A run that is interrupted can be resumed.
"""
