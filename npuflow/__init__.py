"""An open compiler from trained neural networks to NPU programs, built like a build system."""
