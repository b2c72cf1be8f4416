"""The stage suite: what every stage, also a plug-in's, must satisfy in the build of some recipe.
Each check raises AssertionError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npuflow.flow.artifact import Artifact
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
from npuflow.flow.refs import ItemsRef
from npuflow.flow.run import Result
from npuflow.flow.stage import STAGES
from npuflow.flow.store import Store


@dataclass(frozen=True)
class Built:
    """A finished build, and the cache that holds its products."""

    plan: Plan
    result: Result
    store: Store

    def steps(self, stage: str) -> list[str]:
        """The steps that a stage is in this build: itself, its parts and its merges."""
        found = [step for step in self.result.keys if step == stage or step.startswith(f"{stage}.")]
        assert found, f"the recipe builds no stage {stage!r}, only {', '.join(self.result.keys)}"
        return found

    def keys(self, stage: str) -> dict[str, str]:
        """Step and item -> key."""
        keys = self.result.keys
        return {f"{step}/{item or ''}": key for step in self.steps(stage) for item, key in keys[step].items()}

    def digests(self, stage: str) -> dict[str, str]:
        """Step and item -> digest of the product."""
        found: dict[str, str] = {}
        for step in self.steps(stage):
            ref = self.result.refs[step]
            items = ref.items if isinstance(ref, ItemsRef) else {"": ref}
            found |= {f"{step}/{item}": one.digest for item, one in items.items()}
        return found

    def products(self, stage: str) -> dict[str, Artifact]:
        """Step and item -> product, read from the cache."""
        kinds = {step: self.plan[step].signature.output for step in self.steps(stage)}
        return {
            place: self.store.load(digest, kinds[place.partition("/")[0]])
            for place, digest in self.digests(stage).items()
        }


def built(
    recipe: Path, cache: Path, stage: str | None = None, sets: Sequence[str] = (), *, jobs: int = 1
) -> Built:
    """Build a recipe with a cache of its own. `stage`: the last stage to run; `sets`: as after `--set`."""
    loaded = load(recipe, list(sets))
    settings = Settings(cache=cache, jobs=jobs, until=stage, out=cache / "out", publish=False)
    plan = plan_recipe(loaded, STAGES, settings)
    store = open_cache(loaded, settings)
    return Built(plan, run_plan(plan, loaded, store, settings).check(), store)


def check_deterministic(one: Built, other: Built, stage: str) -> None:
    """Two builds with caches of their own give the same bytes, under the same keys."""
    assert one.keys(stage) == other.keys(stage), f"{stage}: two builds of one recipe have different keys"
    first, second = one.digests(stage), other.digests(stage)
    apart = sorted(place for place in first.keys() | second.keys() if first.get(place) != second.get(place))
    assert not apart, f"{stage} is not deterministic: {', '.join(apart)} differ between two builds"


def check_products(one: Built, stage: str) -> None:
    """A product that is read back and saved again has the digest it had: `load` loses nothing."""
    digests = one.digests(stage)
    for place, product in one.products(stage).items():
        assert product.digest() == digests[place], f"{place}: reading and saving it again changes it"


def check_keys(recipe: Path, cache: Path, stage: str, change: str, *, counts: bool) -> None:
    """A changed table changes the stage's keys (`counts`), or leaves all of them as they are."""
    before, after = built(recipe, cache, stage).keys(stage), built(recipe, cache, stage, [change]).keys(stage)
    if counts:
        assert before != after, f"{stage}: {change} does not change its key"
    else:
        assert before == after, f"{stage}: {change} changes its key, though it should not"


class StageSuite:
    """Derive a test class and set `recipe` to a recipe that builds the stage; pytest then runs every check.

    `matters` and `irrelevant`: settings as after `--set` that change the stage's key, and that do not.
    """

    recipe: Path
    stage: str
    matters: tuple[str, ...] = ()
    irrelevant: tuple[str, ...] = ()

    def test_builds(self, tmp_path: Path) -> None:
        one = built(self.recipe, tmp_path / "one", self.stage)
        check_products(one, self.stage)
        again = built(self.recipe, tmp_path / "one", self.stage)
        assert again.result.ran == 0, f"{self.stage}: a second build runs {again.result.ran} steps again"
        check_deterministic(one, built(self.recipe, tmp_path / "other", self.stage, jobs=2), self.stage)

    def test_keys(self, tmp_path: Path) -> None:
        for change in self.matters:
            check_keys(self.recipe, tmp_path, self.stage, change, counts=True)
        for change in self.irrelevant:
            check_keys(self.recipe, tmp_path, self.stage, change, counts=False)
