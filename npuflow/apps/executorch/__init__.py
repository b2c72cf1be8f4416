"""npuflow as a backend of ExecuTorch: a PT2E quantiser.

Noun: `NpuflowQuantizer`.
Public: `NpuflowQuantizer`.
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
    import executorch.exir as exir
    import torchao.quantization.pt2e as pt2e

from npuflow.apps.executorch.quantizer import NpuflowQuantizer

__all__ = ["NpuflowQuantizer", "exir", "pt2e"]
