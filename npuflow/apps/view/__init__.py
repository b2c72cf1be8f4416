"""A local page over the cache: builds, their stages, and what a running build does.

Noun: `Build`.
Public: `address`.
Does not know: networks: it shows what stages stored.
"""
