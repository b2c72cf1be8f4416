"""Programs and models over HTTP, by the KServe v2 inference protocol."""
