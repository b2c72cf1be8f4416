"""Programs and models over HTTP, by the KServe v2 inference protocol.

Noun: `Served`.
Public: `Served`.
Does not know: how a program was built.
"""
