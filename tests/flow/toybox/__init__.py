"""A toy compiler for tests of the build system: numbers instead of tensors, sleeps instead of work."""
