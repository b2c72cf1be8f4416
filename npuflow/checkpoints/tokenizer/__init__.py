"""Tokenizers of checkpoints: text to numbers of tokens and back, and conversations as text."""

from npuflow.checkpoints.tokenizer.stored import FILE as FILE
from npuflow.checkpoints.tokenizer.stored import is_stored as is_stored
from npuflow.checkpoints.tokenizer.stored import restored as restored
from npuflow.checkpoints.tokenizer.stored import stored as stored
from npuflow.checkpoints.tokenizer.tokenizer import CheckpointTokenizer as CheckpointTokenizer
from npuflow.checkpoints.tokenizer.tokenizer import tokenizer as tokenizer
