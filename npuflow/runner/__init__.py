"""Programs and models behind one interface: named tensors in, named tensors out.

Noun: `Runner`.
Public: `Runner`, `TokenSession`, `TextGenerator`, `ProgramRunner`, `Port`, `Backend`, `opened`.
Does not know: recipes, caches.
"""
