"""The operators of single-operator programs, in five shapes each."""

from __future__ import annotations

from tests.ops.program_functions import pairs_rows, reductions_rows, unary_rows
from tests.ops.program_layers import attention_rows, norms_rows, recurrent_rows, windows_rows
from tests.ops.program_moves import indices_rows, moves_rows
from tests.ops.program_products import products_rows

ROWS_OF_TABLE = (
    *unary_rows(),
    *pairs_rows(),
    *windows_rows(),
    *moves_rows(),
    *indices_rows(),
    *reductions_rows(),
    *norms_rows(),
    *products_rows(),
    *recurrent_rows(),
    *attention_rows(),
)
