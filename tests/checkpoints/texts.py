"""A tiny checkpoint whose tokens are characters, and the tokens of texts by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from npuflow.checkpoints import opened
from npuflow.checkpoints.tokenizer import tokenizer
from tests.checkpoints.running import FAMILIES

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
CHARACTERS = "".join(map(chr, range(32, 105)))
BYTES = [f"<0x{byte:02X}>" for byte in "é日".encode()[:4]]


def made(folder: Path) -> Path:
    """The tiny Llama with a tokenizer of single characters and bytes, in a folder that is made."""
    import tokenizers

    shutil.copytree(FAMILIES / "llama", folder)
    tokens = ["<|begin|>", "<|pad|>", "<|end|>", *BYTES, *CHARACTERS]
    library = tokenizers.Tokenizer(
        tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, [], byte_fallback=True)
    )
    library.add_special_tokens(tokens[:3])
    decoders = tokenizers.decoders
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    library.save(str(folder / "tokenizer.json"))
    about = {"eos_token": "<|end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder


def code(text: str) -> list[int]:
    """The tokens of characters from " " to "h"."""
    return [CHARACTERS.index(c) + len(BYTES) + 3 for c in text]


def tokens_of(folder: Path, text: str) -> list[int]:
    return tokenizer(opened(folder)).encode(text)
