"""Published conformance suites for operators, rules, calibrators, targets and stages.

Noun: `Suite`.
Public: one class a suite.
Does not know: the command line.
"""
