"""What every room uses: digests, code digests, errors, registries, tables.

Noun: `Digest`.
Public: `digest`, `Registry`, `Config`, `compiled`, `NpuflowError` and its kinds.
Does not know: networks, stages, caches.
"""
