"""onnxruntime's InferenceSession over programs, ONNX and TFLite models."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime import RunOptions
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from npuflow.base.errors import DataError
from npuflow.base.forked import renewed_in_children
from npuflow.ort.binding import IOBinding
from npuflow.ort.shell import shell
from npuflow.ort.values import (
    CPU,
    PROVIDER,
    REQUIRE_KEY,
    UnsupportedError,
    allowed,
    array_of,
    checked,
    own_options,
    settings,
    wanted,
)
from npuflow.program.container import MAGIC, Program
from npuflow.program.packing.package import Package, load_file, load_network, of_bytes
from npuflow.runner.contexts import context_model_of, programs_of
from npuflow.runner.opening import TFLITE, runnable, trusted
from npuflow.runner.ports import Array
from npuflow.runner.runner import Runner

Feed = Mapping[str, Any]
Callback = Callable[[list[Array], Any, str], None]


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """A session of a program (`.npu`), an ONNX or a TFLite model.

    A program's session has onnxruntime's methods and arguments. Provider options of
    "NpuflowExecutionProvider" say how it runs: `exact` ("executor" or "simulator"), `batch`, `workers`,
    `linger`, `nan`; and with `require_key` (a public key, or several with commas between) that it must be a
    `.npu` that is sealed with one of them.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        own, rest, options = own_options(providers, provider_options)
        keys = own.get(REQUIRE_KEY)
        source = path_or_bytes if keys is None else trusted(path_or_bytes, keys.split(","))
        self.program, several = program_of(source)
        if self.program is None:
            super().__init__(model_of(path_or_bytes), sess_options, rest, options, **kwargs)
            return
        if sess_options is not None and sess_options.optimized_model_filepath:
            raise UnsupportedError("SessionOptions.optimized_model_filepath")
        self._source = source if several else self.program
        self._runner = Runner(self._source, **settings(own))
        described = shell(self.program, self._runner.inputs, self._runner.outputs)
        super().__init__(described, sess_options, rest, options, **kwargs)
        self._own = own
        self._profile: list[dict[str, Any]] | None = (
            [] if sess_options and sess_options.enable_profiling else None
        )
        self._lock = threading.Lock()
        renewed_in_children(self)

    def forked(self) -> None:
        """In a forked process: a lock that no thread of the parent holds."""
        self._lock = threading.Lock()

    def run(
        self, output_names: Sequence[str] | None, input_feed: Feed, run_options: RunOptions | None = None
    ) -> Any:
        """Outputs in the order of their names, all by default."""
        if self.program is None:
            return super().run(output_names, input_feed, run_options)
        names = wanted(output_names, self._runner.outputs)
        feed = checked(input_feed, self._runner.inputs)
        allowed(run_options)
        start = time.perf_counter_ns()
        try:
            found = self._runner.run(feed)
        except DataError as error:  # such as an index outside of its table, which is known in the run alone
            raise InvalidArgument(str(error)) from error
        self._note("model_run", start)
        return [found[name] for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Feed,
        callback: Callback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """The same in another thread, which calls `callback(results, user_data, error text)`."""
        if self.program is None:
            super().run_async(output_names, input_feed, callback, user_data, run_options)
            return
        names = wanted(output_names, self._runner.outputs)
        feed = checked(input_feed, self._runner.inputs)
        allowed(run_options)

        def done(future: Future[dict[str, Array]]) -> None:
            error = future.exception()
            results = [] if error is not None else [future.result()[name] for name in names]
            callback(results, user_data, "" if error is None else str(error))

        self._runner.submit(feed).add_done_callback(done)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Feed,
        run_options: RunOptions | None = None,
    ) -> Any:
        """The same from and to OrtValues."""
        if self.program is None:
            return super().run_with_ort_values(output_names, input_dict_ort_values, run_options)
        found = self.run(output_names, input_dict_ort_values, run_options)
        return [onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)) for array in found]

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Any,
        fetch_names: Sequence[str],
        fetches: Any,
        fetch_devices: Any,
    ) -> None:
        """The same from and to vectors of OrtValues: results are appended to `fetches`."""
        if self.program is None:
            super().run_with_ortvaluevector(
                run_options, feed_names, feeds, fetch_names, fetches, fetch_devices
            )
            return
        feed = {name: array_of(value, name) for name, value in zip(feed_names, feeds, strict=True)}
        for value in self.run_with_ort_values(fetch_names, feed, run_options):
            fetches.push_back(value._get_c_value())

    def io_binding(self) -> Any:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: Any, run_options: RunOptions | None = None) -> None:
        """Run what is bound; outputs are where they are bound to."""
        if self.program is None:
            super().run_with_iobinding(iobinding, run_options)
            return
        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        iobinding.take(self.run(iobinding.names, iobinding.feed(), run_options) if iobinding.names else [])

    def get_providers(self) -> Sequence[str]:
        found: Sequence[str] = super().get_providers()
        return found if self.program is None else [PROVIDER, *(p for p in found if p != PROVIDER)]

    def get_provider_options(self) -> Any:
        found = super().get_provider_options()
        return (
            found if self.program is None else {PROVIDER: {"exact": self._runner.exact, **self._own}, **found}
        )

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Any] | None = None
    ) -> None:
        """A program stays where it is; npuflow's own options take effect."""
        own, rest, options = own_options(providers, provider_options)
        if REQUIRE_KEY in own:
            raise ValueError(f"{PROVIDER}: {REQUIRE_KEY} is stated when a session opens its file")
        super().set_providers(rest or [CPU], options)
        if self.program is not None:
            self._own, former, self._runner = own, self._runner, Runner(self._source, **settings(own))
            former.close()

    def end_profiling(self) -> str:
        """The file of the profile, a Chrome trace; a program's runs are in it."""
        name = str(super().end_profiling())
        if self.program is not None and self._profile is not None and name:
            path = Path(name)
            path.write_text(json.dumps([*json.loads(path.read_text()), *self._profile]))
        return name

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        if self.program is not None:
            raise UnsupportedError("InferenceSession.set_ep_dynamic_options")
        super().set_ep_dynamic_options(options)

    def get_tuning_results(self) -> Any:
        if self.program is not None:
            raise UnsupportedError("InferenceSession.get_tuning_results")
        return super().get_tuning_results()

    def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None:
        if self.program is not None:
            raise UnsupportedError("InferenceSession.set_tuning_results")
        super().set_tuning_results(results, error_on_invalid=error_on_invalid)

    def get_provider_graph_assignment_info(self) -> Any:
        if self.program is not None:
            raise UnsupportedError("InferenceSession.get_provider_graph_assignment_info")
        return super().get_provider_graph_assignment_info()

    def _note(self, name: str, start: int) -> None:
        """One event of the profile."""
        if self._profile is not None:
            took = time.perf_counter_ns() - start
            event = {"cat": "Session", "name": name, "ph": "X", "ts": start // 1000, "dur": took // 1000}
            with self._lock:
                self._profile.append(
                    {**event, "pid": os.getpid(), "tid": threading.get_native_id(), "args": {}}
                )


def program_of(source: Any) -> tuple[Program | None, bool]:
    """The program that a path or bytes hold, if they hold one, and whether it is the first of several: for
    several shapes, or in a model with EPContext nodes. TypeError where it is neither a path nor bytes."""
    if isinstance(source, Program):
        return source, False
    if (program := _in_model(source)) is not None:
        return program, True
    loaded = source if isinstance(source, Package) else _loaded(source)
    if isinstance(loaded, Package):
        return next(iter(loaded.networks.values())), True
    return loaded, False


def _in_model(source: Any) -> Program | None:
    """The first program of an ONNX model with EPContext nodes."""
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    if not isinstance(source, bytes) and (path is None or not path.is_file()):
        return None
    model = context_model_of(source if path is None else path)
    return None if model is None else next(iter(programs_of(model, path).values()))


def _loaded(source: Any) -> Program | Package | None:
    if isinstance(source, bytes):
        return of_bytes(source) if source.startswith(MAGIC) else None
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"Unable to load from type '{type(source)}'")
    path = Path(source)
    if not path.is_file() and ".npu#" in path.name:
        return load_network(path)
    if not path.is_file():
        return None  # onnxruntime reports it
    with path.open("rb") as file:
        return load_file(path) if file.read(len(MAGIC)) == MAGIC else None


def model_of(source: Any) -> Any:
    """What onnxruntime loads: a TFLite model as the ONNX model of the same meaning, others as they are."""
    if isinstance(source, bytes) or not Path(source).is_file():
        return source
    with Path(source).open("rb") as file:
        head = file.read(8)
    return runnable(Path(source)) if head[4:] == TFLITE else source
