"""One NPU per TOML file."""
