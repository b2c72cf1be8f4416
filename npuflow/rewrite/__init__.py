"""Rewrite rules applied to a graph until none applies."""
