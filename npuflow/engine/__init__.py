"""The algorithms: they know contracts, never an entry by name."""
