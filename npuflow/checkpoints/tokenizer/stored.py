"""A checkpoint's tokenizer in a file of its own, beside the program that was built from it.

JSON: `version`, `parts` as `TokenizerParts` has them, and `library`, the text that the library itself writes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from npuflow.base.plain import typed
from npuflow.checkpoints.tokenizer.parts import TokenizerParts, damaged
from npuflow.checkpoints.tokenizer.tokenizer import CheckpointTokenizer, needs_library

FILE = "tokenizer.json"
VERSION = 1
BEGINNING = f'{{"version":{VERSION},"parts":'


def stored(tokenizer: CheckpointTokenizer) -> str:
    """The file's text."""
    whole = {"version": VERSION, "parts": asdict(tokenizer.parts), "library": tokenizer.encoder.to_str()}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def is_stored(path: Path) -> bool:
    """Whether a file is one that `stored` wrote: a checkpoint's own file of that name begins otherwise."""
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(len(BEGINNING)) == BEGINNING


def restored(path: Path) -> CheckpointTokenizer:
    """The tokenizer in a file. ModelError for one that is damaged."""
    with needs_library():
        from tokenizers import Tokenizer
    file = str(path)
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        library = Tokenizer.from_str(whole["library"])
        return CheckpointTokenizer(library, typed(TokenizerParts, whole["parts"]), file)
    except Exception as fault:            # the library's faults share no class
        raise damaged(file, str(fault), "npuflow build RECIPE writes it again") from fault
