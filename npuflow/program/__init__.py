"""The .npu program file and what its metadata must hold."""
