"""A local page over the cache: builds, their stages, and what a running build does."""
