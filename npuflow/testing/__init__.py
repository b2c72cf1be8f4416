"""Published conformance suites for operators, rules, calibrators, targets and stages."""
