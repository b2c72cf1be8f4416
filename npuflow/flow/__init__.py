"""The build system: artifacts and stages, keys and stores; it has never heard of a tensor."""
