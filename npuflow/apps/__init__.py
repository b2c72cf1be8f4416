"""Products on top of the compiler, each of which could be a package of its own.

Noun: `Served`, a program behind HTTP; a `Build` in the browser.
Public: `Served`, `address`.
Does not know: each other; the verbs `serve` and `view` start them.

`npuflow.ort`, `npuflow.torch` and `npuflow.lang` are products as well. They lie where their public names are.
"""
