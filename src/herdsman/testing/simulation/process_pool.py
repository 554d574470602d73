"""Runs many seeds on all cores: each process takes the next seed when it has finished the last."""

import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import cast

from herdsman.telemetry.logs import configure_logs
from herdsman.testing.simulation.runner import Order, Ran, Runner, broken


def sweep(order: Order, processes: int) -> Generator[Ran]:
    """Every seed in its order, as soon as it and all before it have been run. Closing it ends the processes."""
    pool = _ProcessPool(order, processes)
    done: dict[int, Ran] = {}
    try:
        for seed in order.seeds:
            while seed not in done:
                done |= {ran.seed: ran for ran in pool.next()}
            yield done.pop(seed)
    finally:
        pool.end()


@dataclass
class _Member:
    process: SpawnProcess
    pipe: Connection
    seed: int
    """What it is at."""


class _ProcessPool:
    def __init__(self, order: Order, processes: int) -> None:
        self._order = order
        self._left: Iterator[int] = iter(order.seeds)
        # Each has a hash seed of its own, so that an order that only a set gives would be noticed.
        self._context: SpawnContext = get_context("spawn")
        # It unblocks the signals of whoever starts it, so it is started before they are blocked.
        resource_tracker.ensure_running()
        self._members: list[_Member] = []
        for _ in range(processes):
            self._start_member()

    def next(self) -> list[Ran]:
        """What is done now; waits until something is."""
        ready = connection.wait([member.pipe for member in self._members])
        return [self._receive(member) for member in list(self._members) if member.pipe in ready]

    def end(self) -> None:
        for member in self._members:
            member.process.kill()
        for member in self._members:
            member.process.join()
            member.pipe.close()
        self._members.clear()

    def _receive(self, member: _Member) -> Ran:
        try:
            ran: Ran = member.pipe.recv()
        except (EOFError, OSError):
            # A process that died is the finding of the seed that it was at; another takes its place.
            self._retire(member)
            self._start_member()
            return broken(member.seed, f"its process ended with status {member.process.exitcode}")
        seed = next(self._left, None)
        if seed is None:
            self._retire(member)
        else:
            self._send(member, seed)
        return ran

    def _send(self, member: _Member, seed: int) -> None:
        member.seed = seed
        # One that has just died is noticed when its answer is waited for.
        with suppress(OSError):
            member.pipe.send(seed)

    def _retire(self, member: _Member) -> None:
        self._members.remove(member)
        member.pipe.close()
        member.process.join()

    def _start_member(self) -> None:
        seed = next(self._left, None)
        if seed is None:
            return
        ours, theirs = cast("tuple[Connection, Connection]", connection.Pipe())
        process = self._context.Process(target=_work, args=(self._order, theirs), daemon=True)
        with _uninterrupted():
            process.start()
        theirs.close()
        member = _Member(process, ours, seed)
        self._members.append(member)
        self._send(member, seed)


@contextmanager
def _uninterrupted() -> Generator[None]:
    """A process that is started here does not hear the Ctrl-C of its terminal: who started it will end it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(order: Order, pipe: Connection) -> None:
    """Until nobody is there any more to give seeds."""
    # The programs of the world log as in production, and say things that only its story should tell.
    configure_logs("CRITICAL", "json")
    runner = Runner(order)
    with suppress(EOFError, OSError):
        while True:
            pipe.send(runner.run(pipe.recv()))
