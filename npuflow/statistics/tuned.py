"""Every tuned number of statistics: how the network is cut into segments, and what stays in memory."""

from __future__ import annotations

# Segments, whose observations are files of their own: an edit of the model observes those behind it again
SEGMENT_LEAST = 16           # counted tensors of a segment, and ...
SEGMENT_WORK = 1 << 28       # ... what it computes in a sample: so much is worth the milliseconds of a file
SEGMENT_VALUE = 32           # multiplications that take the time that counting a value takes
SEGMENT_MOST = 64 << 20      # bytes of counted tensors after which a segment ends even so
SEGMENT_READERS = 3          # a value that so many nodes read is no step inside a fused operator

# Memory
CELLS_KEPT = 2_000_000       # cells of all tensors up to which their derived arrays (0.1 kB a cell) are kept
CELLS_SAMPLES = 64           # samples whose cells are in memory at once
WEIGHT_COPIES = 2            # onnxruntime keeps weights, and a copy in the order of its kernels
