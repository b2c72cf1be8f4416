"""Products on top of the compiler, each of which could be a package of its own.

Noun: `Served`, a program behind HTTP; a `Build` in the browser; parts of ExecuTorch's and Olive's models.
Public: `Served`, `address`, `npuflow.apps.executorch`, `npuflow.apps.olive`.
Does not know: each other; the verbs `serve` and `view` start two of them, ExecuTorch and Olive call two.

`npuflow.ort`, `npuflow.torch` and `npuflow.lang` are products as well. They lie where their public names are.
"""
