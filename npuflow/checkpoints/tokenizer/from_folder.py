"""Tokenizers of Hugging Face folders: tokenizer.json, with what tokenizer_config.json says of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npuflow.checkpoints.folder import json_file
from npuflow.checkpoints.tokenizer.parts import TokenizerParts, absent, damaged, made

FILE, ABOUT, TEMPLATE, GENERATION = (
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"
)
NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


def parts(folder: Path) -> tuple[Any, TokenizerParts]:
    """The library's tokenizer, and the rest."""
    from tokenizers import Tokenizer

    path = folder / FILE
    if not path.is_file():
        other = next((name for name in ("tokenizer.model", "vocab.json") if (folder / name).is_file()), "")
        raise absent(
            str(path), f"there is no {FILE}{f', only {other}' if other else ''}",
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers writes it",
        )
    library = made(str(path), lambda: Tokenizer.from_file(str(path)))
    about = json_file(folder / ABOUT) if (folder / ABOUT).is_file() else {}
    named = {name: text for name in NAMED if (text := _text(about.get(name)))}
    return library, TokenizerParts(
        _before(library), _stops(folder, library, named), named, _template(folder, about)
    )


def _text(token: Any) -> str:
    """A token as its text, or as a table that holds it."""
    found = token.get("content") if isinstance(token, Mapping) else token
    return found if isinstance(found, str) else ""


def _before(library: Any) -> tuple[int, ...]:
    """What the tokenizer itself puts in front of a text: of one token, all that come before that."""
    with_them, alone = (library.encode("a", add_special_tokens=way).ids for way in (True, False))
    for start in range(len(with_them) - len(alone) + 1):
        if with_them[start : start + len(alone)] == alone:
            return tuple(with_them[:start])
    return ()


def _stops(folder: Path, library: Any, named: Mapping[str, str]) -> tuple[int, ...]:
    stated = json_file(folder / GENERATION).get("eos_token_id") if (folder / GENERATION).is_file() else None
    rows = stated if isinstance(stated, list) else [stated]
    found = [row for row in rows if type(row) is int]
    own = library.token_to_id(named["eos_token"]) if "eos_token" in named else None
    return tuple(dict.fromkeys([*found, *([own] if own is not None else [])]))


def _template(folder: Path, about: Mapping[str, Any]) -> str:
    """A file of its own, or a text of the configuration; of several the one called default."""
    if (folder / TEMPLATE).is_file():
        return (folder / TEMPLATE).read_text(encoding="utf-8", errors="replace")
    found = about.get("chat_template") or ""
    if isinstance(found, list):
        every = {
            row["name"]: row["template"]
            for row in found
            if isinstance(row, Mapping) and {"name", "template"} <= row.keys()
        }
        found = every.get("default", "")
    if not isinstance(found, str):
        raise damaged(str(folder / ABOUT), f"its chat_template is {str(found)[:60]}")
    return found
