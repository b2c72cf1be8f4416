"""Checkpoints of language models: what they state of their network, their tensors, their tokenizer.

Noun: `Checkpoint`.
Public: `Checkpoint`, `Grouped`, `StoredTensor`, `opened`, `is_checkpoint`, `files`.
Does not know: graphs, families, targets.
"""

from npuflow.checkpoints.checkpoint import Checkpoint as Checkpoint
from npuflow.checkpoints.checkpoint import files as files
from npuflow.checkpoints.checkpoint import is_checkpoint as is_checkpoint
from npuflow.checkpoints.checkpoint import opened as opened
from npuflow.checkpoints.grouped import Grouped as Grouped
from npuflow.checkpoints.tensors import StoredTensor as StoredTensor
