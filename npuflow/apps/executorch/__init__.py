"""npuflow as a backend of ExecuTorch: a PT2E quantiser, a partitioner, and what runs the file.

Noun: a partition, which becomes an .npu program inside a .pte file.
Public: `NpuflowQuantizer`, `NpuflowPartitioner`, `NpuflowBackend`, `load`.
Does not know: recipes' files; ranges of its own, where PT2E observed them.
"""

from __future__ import annotations

from npuflow.base.errors import UsageError
from npuflow.base.extras import needs

with needs(
    "npuflow.apps.executorch needs the packages executorch and torchao",
    kind=UsageError,
    hint="pip install 'npuflow[executorch]'",
    code="NF-USAGE-282",
):
    from executorch import exir as exir
    from torchao.quantization import pt2e as pt2e

from npuflow.apps.executorch.backend import NpuflowBackend
from npuflow.apps.executorch.partitioner import NpuflowPartitioner
from npuflow.apps.executorch.quantizer import NpuflowQuantizer
from npuflow.apps.executorch.runtime import load

__all__ = ["NpuflowBackend", "NpuflowPartitioner", "NpuflowQuantizer", "load"]
