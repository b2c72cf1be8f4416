"""A cluster whose driver, client and scheduler are the real code, and whose workers and
network are events on a clock.

What the driver process computes (npuflow's driver, dask's `Client.map`, pickling) and what the scheduler
process computes (dask's own `Scheduler`: `update_graph`, transitions, messages encoded and decoded) is run
and its processor time put on the virtual clock; each of the two processes does one thing at a time. A worker
is an event: it takes a task after what it had before, and is busy for as long as the task is said to take.
Sockets are not there: `Costs` says what they take.
"""

import asyncio
import heapq
import pickle
import threading
from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from time import process_time

from distributed import Client, Scheduler
from distributed.protocol import dumps, loads
from distributed.scheduler import heartbeat_interval

from npuflow.flow.artifact import ArtifactRef
from npuflow.flow.run_step import Done, Outcome, execute

CLIENT = "driver"
FEW, MANY, SHORT = 8, 64, 0.05             # as flow.executor_cluster has them


@dataclass
class Costs:
    """What no code is run for here, in seconds."""

    latency: float = 0.003      # of one message: dask gathers messages for 2 to 5 ms
    message: float = 0.0002     # the event loop's and the socket's part of a message, on either side
    fetch: float = 0.0005       # the scheduler's part of fetching one result from a worker of its own
    begin: float = 0.003        # a worker's part of a task beside the stage: unpickling, opening the store


class _Box:
    """Where the scheduler's messages to one peer go."""

    def __init__(self, out, who):
        self.out, self.who = out, who

    def send(self, *messages):
        self.out.append((self.who, messages))

    def closed(self):
        return True

    def abort(self):
        pass

    async def close(self, **_):
        pass


class _Comm:
    async def write(self, *_):
        pass


class _Scheduler(Scheduler):
    async def handle_worker(self, comm=None, worker=None):
        """There is no connection to listen to."""


class _Loop:
    """Does at once what dask's client has its event loop do; waiting for futures is done here."""

    def add_callback(self, function, *args, **kwargs):
        if getattr(function, "__name__", "") != "done_callback":
            function(*args, **kwargs)


class _Client(Client):
    def __init__(self, send):
        self.id, self.generation, self.status = CLIENT, 0, "running"
        self.futures, self.refcount, self._refcount_lock = {}, defaultdict(int), threading.RLock()
        self._send, self._own = send, _Loop()

    @property
    def loop(self):
        return self._own

    @property
    def asynchronous(self):
        return True

    def _send_to_scheduler(self, message):
        self._send(message)

    def __del__(self):
        pass


class VirtualCluster:
    """An executor for npuflow's driver (see flow.executor.Executor)."""

    dashboard = None
    memory = largest = 1 << 60

    def __init__(self, workers, seconds, costs=None, slow=(), die=False, start=1.0):
        """`seconds(task)`: how long a task takes, None to run it for real. `slow`:
        workers that take four times as long.
        `die`: the first worker that observes dies of it. `start`: what a worker's first task takes longer."""
        self.costs, self.seconds, self.first, self.die = costs or Costs(), seconds, start, die
        self.arrivals, self.label = self, f"{workers} workers"
        self.window, self.slots, self.workers = FEW * workers, workers, workers
        self.events, self.order, self.out = [], count(), []
        self.driver_at = self.scheduler_at = 0.0
        self.spent = defaultdict(float)                     # who -> seconds
        self.tasks, self.ready, self.queues, self.free, self.begun = {}, [], defaultdict(list), {}, set()
        self.gone, self.ran, self.sent, self.step_ends = set(), 0, 0, {}
        self.outcomes, self.futures, self.dead = {}, {}, 0
        self.client = _Client(self._to_scheduler)
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._open(slow))
        self.mark = process_time()

    async def _open(self, slow):
        import dask

        with dask.config.set(
            {"distributed.scheduler.work-stealing": False, "distributed.scheduler.http.routes": []}
        ):
            self.scheduler = _Scheduler(dashboard=False, dashboard_address=None, port=0, host="127.0.0.1")
            await self.scheduler
        from distributed.scheduler import ClientState

        self.scheduler.clients[CLIENT] = ClientState(CLIENT, versions={})
        self.scheduler.client_comms[CLIENT] = _Box(self.out, CLIENT)
        self.names = [
            f"tcp://10.{i >> 16}.{(i >> 8) & 255}.{i & 255}:9000" for i in range(1, self.workers + 1)
        ]
        for name in self.names:
            await self.scheduler.add_worker(
                _Comm(),
                address=name,
                status="running",
                server_id=name,
                nthreads=1,
                name=name,
                resolve_address=False,
                now=0.0,
                resources={},
                memory_limit=4 << 30,
                metrics=_METRICS,
                services={},
                local_directory="",
                versions={},
                nanny="",
                extra={},
                stimulus_id="start",
            )
            self.scheduler.stream_comms[name] = _Box(self.out, name)
            self.free[name] = 0.0
        self.slow = {self.names[i] for i in slow}
        self.out.clear()
        if self.workers > 1:
            self._at(heartbeat_interval(self.workers), self._heartbeats)

    # the clock

    def _at(self, when, what, *args):
        heapq.heappush(self.events, (when, next(self.order), what, args))

    def _driver_worked(self):
        now = process_time()
        self.driver_at += now - self.mark
        self.spent["driver"] += now - self.mark

    def _until(self, when):
        while self.events and self.events[0][0] <= when:
            at, _, what, args = heapq.heappop(self.events)
            what(at, *args)

    def _in_driver(self, at, who, work, *args):
        """The client's loop shares the driver's process, and its lock."""
        begun = process_time()
        found = work(*args)
        took = process_time() - begun + self.costs.message
        self.driver_at = max(self.driver_at, at) + took
        self.spent[who] += took
        return found

    def _in_scheduler(self, at, work, extra=0.0):
        """Run what the scheduler does about something that came at `at`, and send on what it says."""
        begun = process_time()
        work()
        packed = [(who, messages, dumps(list(messages))) for who, messages in self.out]
        self.out.clear()
        took = process_time() - begun + self.costs.message * (1 + len(packed)) + extra
        self.scheduler_at = max(self.scheduler_at, at) + took
        self.spent["scheduler"] += took
        for who, messages, frames in packed:
            receive = self._to_client if who == CLIENT else self._to_worker
            self._at(self.scheduler_at + self.costs.latency, receive, who, messages, frames)

    # between driver and scheduler

    def _to_scheduler(self, message):
        if message["op"] == "update-graph":
            frames = dumps([message])
            self._at(self.driver_now() + self.costs.latency, self._graph, frames)
        else:
            self._at(self.driver_now() + self.costs.latency, self._release, message["keys"])

    def driver_now(self):
        return self.driver_at + process_time() - self.mark

    def _graph(self, at, frames):
        def work():
            (message,) = loads(frames, deserialize=False)
            message.pop("op")
            self.loop.run_until_complete(self.scheduler.update_graph(client=CLIENT, **message))

        self._in_scheduler(at, work)

    def _release(self, at, keys):
        self._in_scheduler(at, lambda: self.scheduler.client_releases_keys(keys, CLIENT, "release"))

    def _to_client(self, at, _, messages, frames):
        def work():
            loads(frames)
            for message in messages:
                if message.get("op") == "key-in-memory":
                    self.client._handle_key_in_memory(message["key"], message.get("type"))
                    self.finished_keys.append(message["key"])

        self.finished_keys = []
        self._in_driver(at, "client", work)
        if self.finished_keys:
            # The driver asks for results as they come (flow.executor_tasks), the
            # scheduler fetches each where it lies.
            keys = list(self.finished_keys)
            self._at(self.driver_at + self.costs.latency, self._fetch, keys)

    def _fetch(self, at, keys):
        self._in_scheduler(at, lambda: None, extra=self.costs.fetch * len(keys))
        packed = pickle.dumps([self.outcomes[key] for key in keys])
        self._at(self.scheduler_at + 3 * self.costs.latency, self._gathered, keys, packed)

    def _gathered(self, at, keys, packed):
        found = self._in_driver(at, "client", pickle.loads, packed)
        for key, outcome in zip(keys, found, strict=True):
            task = self.tasks.pop(key)
            self.ready.append((self.driver_at, task, outcome))
            self.futures.pop(key).release()
            self.step_ends[task.step] = self.driver_at

    # workers

    def _to_worker(self, at, who, messages, _):
        if who in self.gone:
            return
        for message in messages:
            if message.get("op") == "compute-task":
                self.queues[who].append((message["priority"], message["key"], message["run_id"]))
        self._work(at, who)

    def _work(self, at, who):
        if self.free[who] > at or not self.queues[who] or who in self.gone:
            return
        self.queues[who].sort()
        _, key, run_id = self.queues[who].pop(0)
        task = self.tasks.get(key)
        if task is None:
            return
        seconds = self.seconds(task)
        if seconds is None:
            begun = process_time()
            self.outcomes[key] = execute(task)
            seconds = process_time() - begun
        else:
            self.outcomes[key] = _made(task, seconds)
            self.ran += 1
            seconds = seconds * (4.0 if who in self.slow else 1.0) + (
                0.0 if who in self.begun else self.first
            )
            self.begun.add(who)
            if self.die and task.step == "statistics.items" and not self.gone:
                self.gone.add(who)
                self._at(at + seconds / 2, self._died, who)
                return
        done = at + self.costs.begin + seconds
        self.spent["workers"] += seconds
        self.free[who] = done
        message = {
            "op": "task-finished",
            "key": key,
            "run_id": run_id,
            "nbytes": 2000,
            "type": _TYPE,
            "typename": "Outcome",
            "metadata": {},
            "thread": 1,
            "startstops": ({"action": "compute", "start": at, "stop": done},),
            "status": "OK",
            "stimulus_id": f"f-{key}",
        }
        self._at(done + self.costs.latency, self._came_back, who, dumps([message]))
        self._at(done, self._work, who)

    def _came_back(self, at, who, frames):
        def work():
            (message,) = loads(frames, deserialize=False)
            message.pop("op")
            self.scheduler.handle_task_finished(worker=who, **message)

        self._in_scheduler(at, work)

    def _died(self, at, who):
        self.dead += 1
        gone = self.scheduler.remove_worker(who, stimulus_id="died", close=False)
        self._in_scheduler(at, lambda: self.loop.run_until_complete(gone))

    def _heartbeats(self, at):
        """All of them at once, which is not what they do, but takes as long."""
        def work():
            for name in self.names:
                if name not in self.gone:
                    self.scheduler.heartbeat_worker(
                        address=name, resolve_address=False, now=at, resources={}, metrics=_METRICS
                    )

        self._in_scheduler(at, work, extra=self.costs.message * self.workers)
        self._at(at + heartbeat_interval(self.workers), self._heartbeats)

    # what the driver sees

    def start(self):
        """The workers are there from the beginning."""

    def go_on(self):
        """Nothing is held back: a worker's death is the scheduler's business here."""

    def submit(self, tasks):
        self._driver_worked()
        self.mark = process_time()
        names = [task.name for task in tasks]
        self.sent += len(names)
        self.tasks.update(zip(names, tasks, strict=True))
        found = self.client.map(execute, list(tasks), key=names, pure=True)
        self.futures.update(zip(names, found, strict=True))
        took = process_time() - self.mark
        self.driver_at += took
        self.spent["client"] += took
        self.mark = process_time()

    def get(self):
        self._driver_worked()
        while not self.ready:
            if self.events[0][0] > self.driver_at + 3600:
                raise RuntimeError(f"nothing comes back: {self.scheduler.tasks}")
            at, _, what, args = heapq.heappop(self.events)
            what(at, *args)
        at, task, outcome = self.ready.pop(0)
        self.driver_at = max(self.driver_at, at)
        self.mark = process_time()
        return task, outcome

    def empty(self):
        self._driver_worked()
        self._until(self.driver_at)
        self.mark = process_time()
        return not (self.ready and self.ready[0][0] <= self.driver_at)

    def learn(self, task, outcome):
        spent = sum(done.seconds for done in outcome.done)
        self.window = (MANY if spent < SHORT else FEW) * self.workers

    def drop(self):
        return list(self.tasks.values())

    def close(self, *, wait):
        self._driver_worked()
        self.loop.run_until_complete(self.scheduler.close())
        self.loop.close()


def _made(task, seconds):
    """What a worker would answer: keys settled with products named after them."""
    share = seconds / len(task.work)
    done = [Done(one.key, one.item, ArtifactRef(one.key), share, True, None, {}) for one in task.work]
    return Outcome(done=done, worker="worker", memory=400 << 20)


_TYPE = pickle.dumps(Outcome)
_METRICS = {
    "task_counts": {},
    "bandwidth": {"total": 100e6, "workers": {}, "types": {}},
    "digests_total_since_heartbeat": {},
    "managed_bytes": 0,
    "spilled_bytes": {"memory": 0, "disk": 0},
    "transfer": {
        "incoming_bytes": 0,
        "incoming_count": 0,
        "incoming_count_total": 0,
        "outgoing_bytes": 0,
        "outgoing_count": 0,
        "outgoing_count_total": 0,
    },
    "event_loop_interval": 0.02,
    "cpu": 90.0,
    "memory": 400 << 20,
    "time": 0.0,
    "host_net_io": {"read_bps": 0, "write_bps": 0},
    "host_disk_io": {"read_bps": 0, "write_bps": 0},
    "num_fds": 40,
    "executing": {},
    "spans": {},
}
