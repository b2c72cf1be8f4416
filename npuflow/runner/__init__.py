"""Programs and models behind one interface: named tensors in, named tensors out."""
