"""Runs quick stages for a plan, in memory: what they give decides which of the dear ones would run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from npuflow.base.errors import NpuflowError
from npuflow.flow.artifact import Artifact, ArtifactRef
from npuflow.flow.keys import Step
from npuflow.flow.refs import Files, ItemsRef, Listing, Ref
from npuflow.flow.signature import Upstream
from npuflow.flow.stage import Items
from npuflow.flow.store import Store
from npuflow.flow.store_manifest import Damaged


class Ahead:
    """Products that a build would make first. Nothing of them is stored; their digests
    are those that a build gives."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._made: dict[str, Artifact] = {}
        self._by_key: dict[str, Ref | None] = {}

    def load(self, ref: ArtifactRef, kind: type[Any]) -> Any:
        """An artifact, made here or stored."""
        made = self._made.get(ref.digest)
        return made if isinstance(made, kind) else self._store.load(ref, kind)

    def make(self, step: Step, refs: Mapping[str, Ref | None], key: str) -> Ref | None:
        """The product of a step whose inputs and key are known, made once; None if the stage is not quick, or
        fails (a build will say how)."""
        if key not in self._by_key:
            try:
                self._by_key[key] = self.made(step, refs)
            except (NpuflowError, Damaged, OSError):
                self._by_key[key] = None
        return self._by_key[key]

    def made(self, step: Step, refs: Mapping[str, Ref | None], *, listed: bool = True) -> Ref | None:
        """The same; whatever the stage raises is raised. Without `listed` a source that cannot be listed
        counts as one without files: another place reports its fault."""
        if not step.stage.quick or step.over is not None or step.override is not None:
            return None
        args: dict[str, Any] = dict(step.configs)
        if step.signature.files is not None:
            args[step.signature.files] = Files(self._files(step, listed))
        for name, place in step.inputs.items():
            args[name] = self._argument(refs[name], place.upstream)
        made = step.stage.run(args)
        if step.signature.product == "items":
            return ItemsRef({item: self._keep(one) for item, one in made})
        return self._keep(made)

    def _files(self, step: Step, listed: bool) -> Listing:
        try:
            return step.listing or {}
        except Exception:
            if listed:
                raise
            return {}

    def _argument(self, ref: Ref | None, upstream: Upstream) -> Any:
        if isinstance(ref, ItemsRef):
            return Items({item: partial(self.load, one, upstream.kind) for item, one in ref.items.items()})
        return None if ref is None else self.load(ref, upstream.kind)

    def _keep(self, made: Artifact) -> ArtifactRef:
        ref = ArtifactRef(made.digest(), made.uses())
        self._made[ref.digest] = made
        return ref
