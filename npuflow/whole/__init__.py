"""A quantised network on whole tensors: the executor and the C export.

Noun: `Executor`.
Public: `Executor`, `network_of`, `program_of`.
Does not know: tiles, plans, the clock.
"""
