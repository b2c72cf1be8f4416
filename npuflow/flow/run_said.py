"""What a build says of its cache at the end: damage, and that it could only be read."""

from __future__ import annotations

from collections.abc import Callable

from npuflow.flow.events import Event, Warned
from npuflow.flow.store import Store
from npuflow.flow.store_files import Unwritable


def tell_cache(store: Store, refused: Unwritable | None, emit: Callable[[Event], None]) -> bool:
    """Warn of all that was found damaged, and of a cache that could only be read: once each."""
    told = store.tell_damages()
    if refused is not None:
        text = f"the cache {store.root} could only be read: {refused.reason}"
        told.append((text, "it had all that this build needs; to build more: --cache DIR"))
    for text, hint in told:
        emit(Warned(text, hint=hint))
    return True
