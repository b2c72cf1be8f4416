"""Where cycles, bytes and accuracy go: profiles, figures, fits, the statement and the page of a build.

Noun: `Figure`.
Public: `profile`, `Statement`, `write`, `of_network`.
Does not know: caches: it is given a build's products.
"""
