"""Inferences a second: one program on several cores, and inferences one after the other."""
