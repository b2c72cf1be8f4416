"""Sessions of language models: tokens so far, the cache that holds them, and files of both."""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.forked import renewed_in_children
from npuflow.base.paths import absent
from npuflow.base.wording import counted, first_line
from npuflow.checkpoints.ports import LOGITS, POSITION, TOKENS, is_cache
from npuflow.run.state import Step
from npuflow.runner.backend import Backend
from npuflow.runner.language import TokenModel
from npuflow.runner.ports import Array
from npuflow.runner.shaped import ShapedModel

FORMAT = 1                                # of files
ABOUT, STATE = "about", "state:"
Place = str | os.PathLike[str]


def _own(array: Array) -> Array:
    """An array that no other one lies in: caches are large."""
    return array if array.flags.owndata else array.copy()


class TokenSession:
    """The tokens of one sequence, with a cache of its own; weights are those of its runner. Threads take
    turns. `runs`: of the model, by chunk length.

    A run takes a chunk of new tokens, or of the last ones too: no filling reaches the cache. Behind the
    position the cache is as it began, also after `trim`. Caches that are rings do not hold the first tokens
    of a long sequence any more, so that it can be trimmed by some tokens, and to none.
    """

    def __init__(self, model: TokenModel, run: Step) -> None:
        self.model = model
        self.runs: Counter[int] = Counter()
        self._run, self._lock = run, threading.Lock()
        self._tokens: tuple[int, ...] = ()
        self._held: dict[str, Array] = dict(model.start)
        self._earliest = 0                # where a run may begin, if not at 0
        renewed_in_children(self)

    def forked(self) -> None:
        """In a forked process: the run that a thread of the parent was in is the parent's."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<TokenSession of {self.model.name}: {self.position} of {self.model.context} tokens>"

    @property
    def tokens(self) -> tuple[int, ...]:
        """Those that the cache holds."""
        return self._tokens

    @property
    def position(self) -> int:
        """How many tokens the cache holds."""
        return len(self._tokens)

    @property
    def state(self) -> dict[str, Array]:
        """What a run that follows begins with: the position, keys and values as the model keeps them."""
        with self._lock:
            held = {name: array.copy() for name, array in self._held.items()}
            return {**held, POSITION: self._position(len(self._tokens))}

    def append(self, tokens: Iterable[int]) -> Array:
        """Run these tokens behind those before, in the longest chunks that the program has, then in shorter
        ones (`TokenModel.chunk`). The logits [vocabulary] of the token that follows. DataError where they do
        not fit; the session is then as before."""
        new = self._checked(tokens)
        with self._lock:
            before = self._tokens, self._held, self._earliest
            try:
                while True:
                    count, logits = self._once(new)
                    new = new[count:]
                    if not new:
                        return logits
            except BaseException:
                self._tokens, self._held, self._earliest = before
                raise

    def advance(self, tokens: Iterable[int]) -> tuple[int, Array]:
        """`append` as far as one run goes: how many of the tokens it took, and the logits behind these. Who
        has several sessions runs them in turns by it."""
        new = self._checked(tokens)
        with self._lock:
            return self._once(new)

    def trim(self, count: int) -> None:
        """Keep the first tokens only: as if the others had not been appended. DataError for more than there
        are, and where rings do not hold any more what follows them attends to."""
        with self._lock:
            if not 0 <= count <= len(self._tokens):
                raise DataError(
                    f"a session of {counted(len(self._tokens), 'token')} cannot be trimmed to {count}",
                    hint=f"0 to {len(self._tokens)}", code="NF-RUN-093",
                )
            least = self._earliest + self.model.chunks[0] - 1 if self._earliest else 0
            if count and count < min(least, len(self._tokens)):
                self._lost(count, least)
            self._held = {name: self._cut(name, array, count) for name, array in self._held.items()}
            self._tokens = self._tokens[:count]
            self._earliest = self._earliest if count else 0

    def _lost(self, count: int, least: int) -> None:
        ring = max(self.model.rings, key=lambda one: one.earliest(len(self._tokens)))
        least = min(least, len(self._tokens))
        raise DataError(
            f"a session of {counted(len(self._tokens), 'token')} cannot be trimmed to {count} any more",
            because=f"layers with a window of {ring.window} keep the newest {ring.rows} tokens alone, and "
            "the next one attends to older ones",
            hint=f"{least} to {len(self._tokens)}; or 0, and append the first {count} again; or fork or save "
            "the session where you will come back to", code="NF-RUN-146",
        )

    def _cut(self, name: str, array: Array, count: int) -> Array:
        """A state without rows of the cache behind the first ones."""
        if not is_cache(name):
            return array
        start = self.model.start[name]
        if rows := self.model.rows(name):
            found, last = array.copy(), len(self._tokens)
            gone = np.arange(max(count, last - rows), last) % rows
            found[:, :, gone] = start[:, :, gone]
            return found
        found = np.array(start, array.dtype)                         # arrays are never written into
        found[:, :, :count] = array[:, :, :count]
        return found

    def fork(self) -> TokenSession:
        """Another session with the same tokens; what is appended to one is not in the other."""
        other = TokenSession(self.model, self._run)
        with self._lock:
            other._tokens, other._held = self._tokens, self._held        # arrays are never written into
            other._earliest = self._earliest
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokens and cache to an .npz file, which `Runner.session` takes."""
        fork = self.fork()                                           # another thread may append meanwhile
        save_session(path, self.model, fork.tokens, fork.state, fork._earliest)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file that `save` wrote; DataError where it is damaged, or of another model."""
        tokens, state, earliest = load_session(path, self.model)
        with self._lock:
            self._tokens, self._held, self._earliest = tokens, state, earliest

    def _once(self, new: tuple[int, ...]) -> tuple[int, Array]:
        held = len(self._tokens)
        chunk = self.model.chunk(held, len(new), self._earliest)
        if held + len(new) > self.model.context:
            raise DataError(
                f"{counted(len(new), 'token')} behind {held} of {self.model.name} are too many",
                because=f"the cache holds {self.model.context}",
                hint="trim the session, or build a program with a larger [model] dims context",
                code="NF-RUN-090",
            )
        if not chunk:
            raise DataError(
                f"{counted(held + len(new), 'token')} are less than a run of {self.model.name} takes",
                because=f"it takes {self.model.chunks[0]}",
                hint="[model] shapes with { chunk = 1 }, or a longer text", code="NF-RUN-092",
            )
        count = min(chunk, len(new))
        begin = held + count - chunk
        known = (*self._tokens, *new[:count])
        sample = {**self._held, TOKENS: [list(known[begin:])], POSITION: self._position(begin)}
        found = self._run(sample, False)
        self._held = {name: _own(found[output]) for output, name in self.model.state}
        self._tokens = known
        self._earliest = max(self._earliest if begin else 0, self.model.earliest(len(known)))
        self.runs[chunk] += 1
        return count, np.array(found[LOGITS]).reshape(-1)

    def _position(self, count: int) -> Array:
        return np.full_like(self.model.start[POSITION], count)

    def _checked(self, tokens: Iterable[int]) -> tuple[int, ...]:
        new = tuple(int(token) for token in tokens)
        if not new:
            raise DataError("no token is appended", hint="at least one", code="NF-RUN-091")
        wrong = next((token for token in new if not 0 <= token < self.model.vocabulary), None)
        if wrong is not None:
            raise DataError(
                f"there is no token {wrong:,}",
                because=f"{self.model.name} knows {self.model.vocabulary:,} tokens",
                hint="take the tokenizer of the checkpoint that it was built from", code="NF-RUN-096",
            )
        return new

# --- files of sessions


def save_session(
    path: Place, model: TokenModel, tokens: Sequence[int], state: Mapping[str, Array], earliest: int = 0
) -> None:
    """Write an .npz file: "tokens", "state:NAME" for what is kept, of caches the part that holds the tokens,
    of rings all of it, and "about", JSON that says of which model. `earliest`: where a run may begin."""
    arrays = {
        f"{STATE}{name}": array[:, :, : len(tokens)] if is_cache(name) and not model.rows(name) else array
        for name, array in state.items()
    }
    more = {"earliest": earliest} if earliest else {}
    about = json.dumps({"format": FORMAT, "model": identity(model.backend), **more}).encode()
    arrays |= {ABOUT: np.frombuffer(about, np.uint8), TOKENS: np.asarray(tokens, np.int64)}
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    Path(path).write_bytes(file.getvalue())


def load_session(path: Place, model: TokenModel) -> tuple[tuple[int, ...], dict[str, Array], int]:
    """Tokens and state of a file, and where a run may begin; DataError for one that is damaged, or of another
    model."""
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
        earliest = int(about.get("earliest", 0))
        if own and not model.earliest(len(tokens)) <= earliest <= len(tokens):
            raise ValueError("rings that do not hold what it says")
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
    return tokens, state, earliest


def _whole(model: TokenModel, arrays: Mapping[str, Array], count: int) -> dict[str, Array]:
    """The state with caches of the model's length."""
    found: dict[str, Array] = {}
    for name, start in model.start.items():
        array = arrays[f"{STATE}{name}"]
        grows = is_cache(name) and not model.rows(name)
        cut = start[:, :, :count] if grows else start
        if array.shape != cut.shape or array.dtype != start.dtype or count > model.context:
            raise ValueError(f"{name} is {array.dtype} {list(array.shape)}")
        found[name] = array
        if grows:
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
