"""Keeps the limits of a build's caches while it runs, and says what it uses of a remote one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from npuflow.base.errors import NpuflowError
from npuflow.flow.events import Event, Warned
from npuflow.flow.memory import shown
from npuflow.flow.store import Store
from npuflow.flow.store_files import Unwritable
from npuflow.flow.store_limit import shrink

if TYPE_CHECKING:
    from npuflow.flow.store_remote import Remote


def tell_cache(store: Store, refused: Unwritable | None, emit: Callable[[Event], None]) -> bool:
    """Warn of all that was found damaged, and of a cache that could only be read: once each."""
    told = store.tell_damages()
    if refused is not None:
        text = f"the cache {store.root} could only be read: {refused.reason}"
        told.append((text, "it had all that this build needs; to build more: --cache DIR"))
    for text, hint in told:
        emit(Warned(text, hint=hint))
    return True


EVERY = 60.0        # seconds between two looks at the size of the cache of a running build
SHARE = 20          # a look that takes long is taken less often: between two, so many times what it took


class Keeper:
    """Keeps the limits of a running build's caches, now and then and at its end."""

    def __init__(self, store: Store) -> None:
        self._store, self._stop = store, threading.Event()
        self._thread: threading.Thread | None = None
        remote = store.remote
        self._beats = remote is not None and remote.mode == "read-write"
        if store.lease is not None and (store.limit is not None or self._beats):
            self._thread = threading.Thread(target=self._run, name="npuflow-limit", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause = EVERY
        while not self._stop.wait(pause):
            begun = time.monotonic()
            if self._beats and self._store.remote is not None:
                self._store.remote.beat()
            if self._store.limit is not None:
                with suppress(Exception):  # a build does not end for it; at the end it is told
                    shrink(self._store, self._store.limit)
            pause = max(EVERY, SHARE * (time.monotonic() - begun))

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def last(self, ran: int, warn: Callable[[str, str], None]) -> None:
        """The last look, if the build has added something; a cache above its limit is a warning."""
        store, remote = self._store, self._store.remote
        if store.lease is None:
            return
        if remote is not None:
            remote.beat()
        if not ran:
            return
        larger = "what this build and others that run have used stays"
        if store.limit is not None:
            done = shrink(store, store.limit)
            if done.over:
                text = f"the cache {store.root} holds {shown(done.left)}, more than its limit of "
                hint = "a larger [build] cache_size or NPUFLOW_CACHE_SIZE"
                warn(f"{text}{shown(done.limit)}: {larger}", hint)
        if remote is not None and remote.limit is not None:
            self._last_remote(remote, warn)

    def _last_remote(self, remote: Remote, warn: Callable[[str, str], None]) -> None:
        from npuflow.flow.store_limit_remote import keep_small

        try:
            found = keep_small(remote)
        except NpuflowError as fault:
            warn(f"{fault.message}: {fault.because}", fault.hint)
            return
        if found is not None and found.over:
            text = f"the remote cache {remote.shown} holds {shown(found.left)}, more than its limit of "
            hint = "a larger [build] remote_size"
            warn(f"{text}{shown(found.limit)}: what was used in the last hour stays", hint)
