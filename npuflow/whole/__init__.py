"""A quantised network on whole tensors: the executor and the C export."""
