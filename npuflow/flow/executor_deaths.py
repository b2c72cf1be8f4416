"""Workers that died or are paused, in words: the errors of a step or a cluster without them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from npuflow.base.errors import BuildError
from npuflow.flow.memory import shown

MEMORY = "out of memory"
UNKNOWN = "it died, or its connection was lost; see its own log"
_SIGNALS = {
    signal.SIGKILL: f"as the system does to a process when it runs {MEMORY}",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGBUS: "a crash in native code, or a full disk or shared memory",
    signal.SIGILL: "an instruction that this processor does not have",
    signal.SIGABRT: "a library gave up",
}


def ended(code: int | None) -> str:
    """How a process ended, by its exit code; negative ones are signals."""
    if code is None:
        return ""
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"its process was ended by signal {-code}"
    why = f" ({_SIGNALS[number]})" if number in _SIGNALS else ""
    return f"its process was ended by {number.name}{why}"


def exceeded(event: Mapping[str, Any], limit: int | None) -> str:
    """How a worker ended that its nanny stopped at the memory limit."""
    allowed = f" of {shown(limit)}" if limit else ""
    return f"{MEMORY}: its process took {shown(int(event['rss']))}, and was ended at its limit{allowed}"


def memory_hint(lighter: str = "") -> str:
    """What to try when memory runs out, beginning with the recipe keys of the stage at hand."""
    general = "[build] jobs = 1 (--jobs 1), so that no other step takes memory at the same time"
    return f"{lighter}; or {general}" if lighter else general


def one_died(step: str, how: str) -> str:
    """The warning for a worker whose work is done again."""
    return f"a worker died under {step}" + (f" ({how})" if how else "") + "; its work is rescheduled"


def died(step: str, who: str, how: str = "", lighter: str = "") -> BuildError:
    """A step under which workers die again and again. Where nobody saw how, memory is what it mostly is."""
    if how and MEMORY not in how:
        hint = f"run it in this process to see the fault: --scheduler threads --jobs 1 --until {step}"
        return BuildError(f"{step}: {who} died", because=how, hint=hint, code="NF-STEP-002")
    text = f"{step}: {who} died" + (f" {MEMORY}" if how.startswith(MEMORY) else f", most likely {MEMORY}")
    return BuildError(text, because=how, hint=memory_hint(lighter), code="NF-STEP-002")


def none_left(ways: Mapping[str, str], *, own: bool) -> BuildError:
    """A cluster whose workers all died."""
    because = "; ".join(f"{worker}: {how}" for worker, how in list(ways.items())[-4:])
    hint = "start workers again, and read the last log lines of the lost ones"
    if any(MEMORY in how for how in ways.values()):
        hint = (
            '[build] memory = "8GB" allows more for all together, a smaller [build] jobs allows more for each'
        )
        if not own:
            hint = "give each worker more memory: dask worker --memory-limit 4GB"
    return BuildError("every worker of the cluster died", because=because, hint=hint, code="NF-CLUSTER-003")


def rests(worker: Mapping[str, Any]) -> bool:
    """Whether a worker, as its scheduler describes it, was paused by dask and runs nothing."""
    counts = worker.get("metrics", {}).get("task_counts", {})
    return worker.get("status") == "paused" and not counts.get("executing")


def all_rest(workers: Collection[str]) -> BuildError:
    """Workers without work that are paused until their memory falls, which may be for ever."""
    return BuildError(
        f"{', '.join(sorted(workers))}: paused, and there is no other worker for a step",
        because="dask gives nothing to a worker above 80 % of its memory limit, though nothing runs there",
        hint="restart the workers with more memory (dask worker --memory-limit 4GB), "
        "or with DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False",
        code="NF-CLUSTER-006",
    )


class Deaths:
    """How the workers of one cluster ended, as far as it can be known from here."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.limits: dict[str, int] = {}
        self.ways: dict[str, str] = {}

    def nanny(self) -> type[Any]:
        """The class of nannies to start: it notes the exit codes of their workers."""
        import distributed

        codes = self.codes

        class Noting(distributed.Nanny):
            def _on_worker_exit_sync(self, exitcode: int) -> None:
                own = str(self.worker_address or self.name)
                codes.pop(own, None)
                codes[own] = exitcode
                super()._on_worker_exit_sync(exitcode)  # type: ignore[no-untyped-call]

        Noting.__name__ = "Nanny"  # what dask calls it in its log
        return Noting

    def of(self, worker: str, events: Callable[[str], Any]) -> str:
        """How one worker ended, empty where it cannot be known; `events` gives what the
        scheduler noted under a topic."""
        how = ""
        with suppress(OSError, RuntimeError, AttributeError):  # a scheduler that is gone knows nothing more
            for _, event in events("worker-restart-memory") or ():
                if event.get("worker") == worker:
                    how = exceeded(event, self.limits.get(worker))
        how = how or ended(self.codes.get(worker))
        self.ways[worker] = how or UNKNOWN
        return how

    def last(self) -> str:
        """How the worker ended that ended last: a nanny may note an end under the worker's name alone, when
        its address is gone already."""
        return ended(next(reversed(self.codes.values()), None))

    def started(self) -> dict[str, str]:
        """How workers ended that never joined."""
        return {name: ended(code) for name, code in self.codes.items()}
