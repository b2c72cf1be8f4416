"""Programs and models over HTTP: by the KServe v2 inference protocol, and text by OpenAI's.

Noun: `Served`.
Public: `Served`.
Does not know: how a program was built.
"""
