"""Rewrite rules applied to a graph until none applies.

Noun: `Rewritten`.
Public: `rewrite`, `Rewritten`, `Applied`.
Does not know: single rules.
"""
