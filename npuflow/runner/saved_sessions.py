"""Files of sessions: tokens, and the part of the cache that holds them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.paths import absent
from npuflow.base.wording import first_line
from npuflow.checkpoints.ports import TOKENS, is_cache
from npuflow.runner.backend import Backend
from npuflow.runner.language import TokenModel
from npuflow.runner.ports import Array
from npuflow.runner.shaped import ShapedModel

FORMAT = 1
ABOUT, STATE = "about", "state:"
Place = str | os.PathLike[str]


def save_session(path: Place, model: TokenModel, tokens: Sequence[int], state: Mapping[str, Array]) -> None:
    """Write an .npz file: "tokens", "state:NAME" for what is kept, of caches the part that holds the tokens,
    and "about", JSON that says of which model."""
    arrays = {
        f"{STATE}{name}": array[:, :, : len(tokens)] if is_cache(name) else array
        for name, array in state.items()
    }
    about = json.dumps({"format": FORMAT, "model": identity(model.backend)}).encode()
    arrays |= {ABOUT: np.frombuffer(about, np.uint8), TOKENS: np.asarray(tokens, np.int64)}
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    Path(path).write_bytes(file.getvalue())


def load_session(path: Place, model: TokenModel) -> tuple[tuple[int, ...], dict[str, Array]]:
    """Tokens and state of a file; DataError for one that is damaged, or of another model."""
    if not Path(path).is_file():
        raise absent(Path(path))
    try:
        with np.load(path, allow_pickle=False) as file:
            about, arrays = json.loads(bytes(file[ABOUT])), {name: file[name] for name in file.files}
        own = about["format"] == FORMAT and about["model"] == json.loads(json.dumps(identity(model.backend)))
        tokens = tuple(int(token) for token in arrays[TOKENS]) if own else ()
        if not all(0 <= token < model.vocabulary for token in tokens):
            raise ValueError("a token that the model does not know")
        state = _whole(model, arrays, len(tokens)) if own else {}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f'"{path}" is no file of a session', because=first_line(error),
            hint="TokenSession.save writes one", code="NF-RUN-095",
        ) from None
    if not own:
        raise DataError(
            f'"{path}" holds the session of another model than {model.name}',
            because="weights, or the types of its cache, are not the same",
            hint="append its tokens to a new session", code="NF-RUN-094",
        )
    return tokens, state


def _whole(model: TokenModel, arrays: Mapping[str, Array], count: int) -> dict[str, Array]:
    """The state with caches of the model's length."""
    found: dict[str, Array] = {}
    for name, start in model.start.items():
        array = arrays[f"{STATE}{name}"]
        cut = start[:, :, :count] if is_cache(name) else start
        if array.shape != cut.shape or array.dtype != start.dtype or count > model.context:
            raise ValueError(f"{name} is {array.dtype} {list(array.shape)}")
        found[name] = array
        if is_cache(name):
            found[name] = start.copy()
            found[name][:, :, :count] = array
    return found


def identity(backend: Backend) -> dict[str, Any]:
    """What two models share whose caches are the same: constants of a program, types of its state."""
    one = backend.each[0] if isinstance(backend, ShapedModel) else backend
    program = getattr(one, "program", None)
    kept = {name for _, name in backend.state}
    types = [[port.name, port.dtype, list(port.shape)] for port in backend.inputs if port.name in kept]
    if program is None:
        return {"types": types}
    entries = [[e["name"], e["dtype"], e.get("quant")] for e in program.meta["inputs"] if e["name"] in kept]
    return {"types": types, "codes": entries, "constants": hashlib.sha256(program.const).hexdigest()}
