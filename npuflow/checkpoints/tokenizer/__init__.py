"""Tokenizers of checkpoints: text to numbers of tokens and back, and conversations as text."""

from npuflow.checkpoints.tokenizer.tokenizer import CheckpointTokenizer as CheckpointTokenizer
from npuflow.checkpoints.tokenizer.tokenizer import tokenizer as tokenizer
