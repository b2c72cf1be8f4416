"""Floor 0: digests, code digests, errors, registries, tables."""
