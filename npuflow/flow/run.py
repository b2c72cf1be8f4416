"""The driver: finds each step's key when its inputs are known, looks it up, submits the misses."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from npuflow.base.code_loaded import LOADED
from npuflow.base.errors import BuildError, DataError, Interrupted, NpuflowError, StoreError
from npuflow.flow.events import Event, Opened, Spent, Started, Status, StepEvent, Summary, Warned
from npuflow.flow.executor import TaskExecutor, one_thread_each
from npuflow.flow.executor_code import edited_meanwhile
from npuflow.flow.executor_deaths import died, one_died
from npuflow.flow.foresight import Foresight
from npuflow.flow.interrupt import check, heeding
from npuflow.flow.keys import Step
from npuflow.flow.plan import Plan
from npuflow.flow.refs import ArtifactRef, Ref
from npuflow.flow.run_keeper import Keeper, tell_cache
from npuflow.flow.run_products import publish
from npuflow.flow.run_queue import Queue
from npuflow.flow.run_state import ATTEMPTS, Result, StepState, adopted, units
from npuflow.flow.run_step import Done, Outcome, Task
from npuflow.flow.store import _OPEN, Store
from npuflow.flow.store_files import Unwritable
from npuflow.flow.store_lease import Lease, add_root, claim, lacking
from npuflow.flow.store_manifest import Damaged

OnEvent = Callable[[Event], None]
__all__ = ["Interrupted", "Result", "build"]


@heeding()
def build(
    plan: Plan,
    store: Store,
    *,
    jobs: int | None = None,
    memory: str | None = None,
    scheduler: str = "threads",
    dashboard: bool | None = None,
    keep_going: bool = False,
    force: Collection[str] = (),
    on_event: OnEvent | None = None,
    out_dir: Path | None = None,
    part: bool = False,
) -> Result:
    """Bring every step of the plan up to date. Failed steps are in the result; a
    cache that fails is raised. `part`: the plan is a part of the recipe's."""
    one_thread_each()
    emit = on_event or (lambda _: None)
    held = claim(store.root)
    lease = held if isinstance(held, Lease) else None
    name = lease.name if lease is not None else None
    # a cache that takes nothing cannot take what a remote one has either
    remote = store.remote if lease is not None else None
    own = Store(store.root, remote, lease=name, warn=lambda text: emit(Warned(text)))
    _OPEN[own.spec] = own  # steps run in this process share the driver's store
    own.limit = store.limit
    clean, workers, told = False, None, False
    keeper = Keeper(own)
    try:
        number = jobs or os.cpu_count() or 1
        workers = TaskExecutor(
            scheduler, number, plan, own, memory, dashboard, lambda *what: emit(Opened(*what))
        )
        driver = _Driver(plan, own, workers, emit, plan.forced(force), keep_going)
        driver.refused = held if isinstance(held, Unwritable) else None
        emit(Started(tuple(step.name for step in plan), len(plan)))
        result = driver.run(out_dir)
        clean = True
        if out_dir is not None and lease is not None:
            used = (key for keys in result.keys.values() for key in keys.values())
            failed = (error.as_dict() for error in result.errors)
            add_root(own.root, out_dir.absolute(), used, failed, part=part)
        keeper.last(result.ran, lambda text, hint: emit(Warned(text, hint=hint)))
        told = tell_cache(own, driver.refused, emit)
        products = {name: str(path) for name, path in result.products.items()}
        counts = result.hit, result.ran, result.failed, result.skipped
        emit(Summary(*counts, result.seconds, result.outputs, products))
        return result
    except StoreError:
        clean = True  # the cache fails: what else is being written to it is cleaned up first
        raise
    finally:
        if workers is not None:
            workers.close(wait=clean)
        keeper.close()
        _OPEN.pop(own.spec, None)
        if not told:
            tell_cache(own, None, emit)
        if lease is not None:
            lease.release()


class _Driver:
    """One build in progress."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        workers: TaskExecutor,
        emit: OnEvent,
        force: frozenset[str],
        keep_going: bool,
    ) -> None:
        self.plan, self.store, self.workers, self.emit = plan, store, workers, emit
        self.force, self.keep_going = force, keep_going
        self.states = {step.name: StepState(step) for step in plan}
        self.queue = Queue(workers, store, plan.urgency, force, emit)
        self.result = Result()
        self.halted = False
        self.refused: Unwritable | None = None
        """Why the cache can only be read, where that is so."""
        self._loaded: tuple[str, Any] | None = None
        self.foresight = Foresight(plan, workers.largest)
        self._known = LOADED.known

    def run(self, out_dir: Path | None = None) -> Result:
        """Settle every step; with a folder, write the products there, and settle
        again what proves damaged then."""
        begun = time.perf_counter()
        try:
            self._settle_all()
            for _ in range(2 * len(self.plan) if out_dir is not None else 0):
                try:
                    self.result.products = publish(self._published(), self.store, out_dir or Path())
                    break
                except Damaged as damage:
                    self._send_back({damage.digest: damage.reason}, self.states[self.plan.steps[-1].name])
                    self._settle_all()
            else:
                if out_dir is not None:
                    publish(self._published(), self.store, out_dir)
        except KeyboardInterrupt:
            self.workers.drop()
            settled = sum(len(state.found) for state in self.states.values())
            raise Interrupted(
                f"interrupted; {settled} finished step{'s are' if settled != 1 else ' is'} kept",
                hint="run the same command again to resume", code="NF-BUILD-130",
            ) from None
        return self._conclude(time.perf_counter() - begun)

    def _settle_all(self) -> None:
        check()
        self._advance()
        self._feed()
        while self.queue.running:
            check()
            self._arrived(*self.workers.arrivals.get())
            while not self.workers.arrivals.empty():
                self._arrived(*self.workers.arrivals.get())
            self._advance()
            self._feed()
            self.workers.go_on()

    def _feed(self) -> None:
        if not self.halted:
            self.queue.feed(self.states, hold=self.foresight.pending(self.states))

    def _settled_refs(self) -> dict[str, Ref]:
        return {name: state.ref for name, state in self.states.items() if state.ref is not None}

    def _published(self) -> dict[str, Ref]:
        """What products are copied of."""
        hidden = {name for step in self.plan for name in step.stage.replaces}
        return {name: ref for name, ref in self._settled_refs().items() if name not in hidden}

    def _conclude(self, seconds: float) -> Result:
        result = self.result
        result.refs = self._settled_refs()
        for name, state in self.states.items():
            result.keys[name] = dict(state.keys)
            result.status[name] = dict(state.status)
        counts = Counter(status for state in self.states.values() for status in state.status.values())
        result.hit, result.ran = counts["hit"], counts["ran"]
        result.failed, result.skipped = counts["failed"], counts["skipped"]
        result.seconds = seconds
        return result

    # steps

    def _advance(self) -> None:
        """Look up every step whose inputs have just become known."""
        moved = True
        while moved and not self.halted:
            moved = False
            for step in self.plan:
                state = self.states[step.name]
                if state.begun or state.over_with:
                    continue
                sources = [place.step for place in step.inputs.values() if place.step is not None]
                bad = [
                    name for name in sources if self.states[name].over_with and self.states[name].ref is None
                ]
                if bad:
                    self._skip(state, bad[0])
                    moved = True
                elif all(self.states[name].ref is not None for name in sources):
                    self._begin(state)
                    moved = True

    def _refs(self, step: Step) -> dict[str, Ref | None]:
        return {
            name: None if place.step is None else self.states[place.step].ref
            for name, place in step.inputs.items()
        }

    def _begin(self, state: StepState) -> None:
        """Compute a step's keys; what is in the store is a hit, the rest is queued."""
        step, refs = state.step, self._refs(state.step)
        try:
            if step.override is not None:
                self._adopt(state)
                return
            state.begin(step.bind(refs, self._load))
            if LOADED.known != self._known:  # keys of one build hold the sources of one moment
                self._known = LOADED.known
                if edited := LOADED.edited():
                    raise edited_meanwhile(edited)
        except Damaged as damage:
            state.reset()
            if state.undone(str(damage.digest)):
                self._send_back({damage.digest: damage.reason}, state)
            else:
                self._fail(state, None, damage)
            return
        except OSError as fault:
            text = f"cannot read {fault.filename}: {fault.strerror}"
            self._fail(state, None, DataError(text, code="NF-DATA-066"))
            return
        except NpuflowError as fault:
            self._fail(state, None, fault.at(stage=step.name))
            return
        misses = {key: item for item, key in state.keys.items() if not self._hit(state, item, key)}
        state.pending = misses
        if misses and self.refused is not None:
            raise lacking(self.store.root, self.refused, step.name, next(iter(misses.values())))
        if misses:
            self.workers.start()
            self.queue.budget.whole, self.foresight.most = self.workers.memory, self.workers.largest
        self._concluded(state)
        if state.over:
            self.emit(state.progress())
        if misses and not state.failed:
            self.queue.put(state, refs, {k: i for k, i in misses.items() if k not in self.queue.running})

    def _concluded(self, state: StepState) -> None:
        """A step has its product, or is about to run: the memory that later ones need may end the build."""
        state.conclude()
        for name, error in self.foresight.faults(state, self.states, self._load, self.emit):
            self._fail(self.states[name], None, error)

    def _hit(self, state: StepState, item: str | None, key: str) -> bool:
        if state.step.name in self.force and key not in state.forced:
            return False
        record = self.store.record(key)
        if record is None or not self.store.usable(record):
            return False
        state.settle(key, item, record.ref)
        about = (record.seconds, record.output, "", None, record.summary)
        self._report(state, StepEvent(state.step.name, item, key, "hit", *about))
        return True

    # outcomes

    def _arrived(self, sent: Task, outcome: Outcome) -> None:
        self.workers.learn(sent, outcome)
        self.queue.ended(sent)
        self.emit(Spent(sent.step, outcome.took, outcome.busy, outcome.memory))
        if outcome.fatal and outcome.error is not None:
            raise outcome.error
        state = self.states[sent.step]
        ran = sum(done.ran for done in outcome.done)
        for done in outcome.done:
            self._settled(state, done, sent.force)
        left = {one.key: one.item for one in sent.work if one.key in state.pending}
        if left and outcome.error is None and not outcome.unfit:
            outcome.error = BuildError(f"{sent.step} ended without a result", code="NF-STEP-005").at(
                stage=sent.step
            )
        if left and (outcome.error is not None or outcome.unfit):
            self._retry_or_fail(state, sent, outcome, left)
        self._concluded(state)
        if state.over:
            state.pace.took(
                units(state.step, (o.item for o in sent.work)), ran, outcome.worker, outcome.memory
            )
            self.emit(state.progress())

    def _settled(self, state: StepState, done: Done, forced: bool) -> None:
        if not state.settle(done.key, done.item, done.ref, forced=forced):
            return
        if done.conflict is not None:
            text = f"{state.step.name} is not deterministic: equal inputs gave {done.conflict}"
            hint = f"npuflow cache verify --rerun {state.step.name}"
            self.emit(Warned(text, state.step.name, hint))
        about = (done.seconds, done.ref.digest, "", None, done.summary)
        status: Status = "ran" if done.ran else "hit"
        self._report(state, StepEvent(state.step.name, done.item, done.key, status, *about))

    def _retry_or_fail(
        self, state: StepState, sent: Task, outcome: Outcome, left: dict[str, str | None]
    ) -> None:
        error = outcome.error
        if outcome.unfit:  # another worker may do it, under another name: this one's answer is known
            state.again(left)
            self.queue.put(state, self._refs(state.step), left)
            return
        if outcome.damaged or outcome.lost:
            again = [state.undone(cause, left) for cause in outcome.damaged or ("lost",)]
            if all(again):
                if outcome.damaged:
                    self._send_back(outcome.damaged, state)
                else:
                    self.emit(Warned(one_died(state.step.name, outcome.how), state.step.name))
                    self.queue.put(state, self._refs(state.step), left, size=1)
                return
            if outcome.lost:
                error = died(state.step.name, f"{ATTEMPTS} workers", outcome.how, state.step.stage.lighter)
        elif units(state.step, left.values()) > 1:
            # Not to blame a batch for one of its items: the rest go one by one.
            self.queue.put(state, self._refs(state.step), left, size=1)
            return
        for item in left.values():
            self._fail(state, item, error or BuildError(f"{state.step.name} failed", code="NF-STEP-006"))

    def _fail(self, state: StepState, item: str | None, error: Exception) -> None:
        text = f"{state.step.name}: {error}"
        fault = error if isinstance(error, NpuflowError) else BuildError(text, code="NF-STEP-007")
        fault.at(stage=state.step.name, item=item)
        state.fail(item, fault)
        self.result.errors.append(fault)
        about = (0.0, None, fault.message, fault)
        self._report(state, StepEvent(state.step.name, item, state.keys.get(item), "failed", *about))
        if not self.keep_going:
            self.halted = True
            for back in self.workers.drop():
                self.queue.ended(back)

    def _skip(self, state: StepState, source: str) -> None:
        cause = self.states[source].skipped  # where the source was skipped itself, the step that failed
        state.skipped = cause if cause and cause != "failed" else f"{source} failed"
        self._report(state, StepEvent(state.step.name, None, None, "skipped", reason=state.skipped))

    def _report(self, state: StepState, event: StepEvent) -> None:
        """Once for every item and status."""
        if state.note(event.item, event.status):
            self.emit(event)

    # damage

    def _send_back(self, damaged: Mapping[Any, str], victim: StepState) -> None:
        """Products are missing or damaged: set them aside, and have their producers and all
        that hangs on them look again. How many there were is told once, at the end."""
        stale: set[str] = set()
        for digest, reason in damaged.items():
            makers = {name for name, state in self.states.items() if state.made(digest)}
            if digest is None or not makers:
                text = (
                    f"an input of {victim.step.name} is damaged and no step of this build produces it: "
                    f"{reason}"
                )
                self._fail(victim, None, StoreError(text, code="NF-STORE-005").at(stage=victim.step.name))
                return
            self.store.quarantine_damaged(digest)
            stale |= makers
        for step in self.plan:
            if any(place.step in stale for place in step.inputs.values()):
                stale.add(step.name)
        for name in stale:
            if not self.states[name].skipped:
                self.states[name].reset()

    def _adopt(self, state: StepState) -> None:
        ref = adopted(state.step, self.store)
        state.adopt(ref)
        taken = f"taken from {state.step.override}"
        self._report(state, StepEvent(state.step.name, None, None, "hit", 0.0, ref.digest, taken))

    def _load(self, ref: ArtifactRef, kind: Any) -> Any:
        """For projections: the last artifact asked for is kept, as a fan-out asks once for every item."""
        if self._loaded is None or self._loaded[0] != ref.digest:
            self._loaded = ref.digest, self.store.load(ref, kind)
        return self._loaded[1]
