"""Many seeds on all cores: each process takes the next one when it has run the last."""

import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import cast

from herdsman.telemetry.logs import configure_logs
from herdsman.testing.simulation.run import Order, Ran, Runner, broken


def sweep(order: Order, processes: int) -> Generator[Ran]:
    """Every seed in its order, as soon as it and all before it have been run. Closing it ends the processes."""
    crew = _Crew(order, processes)
    done: dict[int, Ran] = {}
    try:
        for seed in order.seeds:
            while seed not in done:
                done |= {ran.seed: ran for ran in crew.next()}
            yield done.pop(seed)
    finally:
        crew.end()


@dataclass
class _Hand:
    process: SpawnProcess
    pipe: Connection
    seed: int
    """What it is at."""


class _Crew:
    def __init__(self, order: Order, processes: int) -> None:
        self._order = order
        self._left: Iterator[int] = iter(order.seeds)
        # Each has a hash seed of its own, so that an order that only a set gives would be noticed.
        self._context: SpawnContext = get_context("spawn")
        # It unblocks the signals of whoever starts it, so it is started before they are blocked.
        resource_tracker.ensure_running()
        self._hands: list[_Hand] = []
        for _ in range(processes):
            self._hire()

    def next(self) -> list[Ran]:
        """What is done now; waits until something is."""
        ready = connection.wait([hand.pipe for hand in self._hands])
        return [self._taken(hand) for hand in list(self._hands) if hand.pipe in ready]

    def end(self) -> None:
        for hand in self._hands:
            hand.process.kill()
        for hand in self._hands:
            hand.process.join()
            hand.pipe.close()
        self._hands.clear()

    def _taken(self, hand: _Hand) -> Ran:
        try:
            ran: Ran = hand.pipe.recv()
        except (EOFError, OSError):
            return self._lost(hand)
        seed = next(self._left, None)
        if seed is None:
            self._let_go(hand)
        else:
            self._give(hand, seed)
        return ran

    def _lost(self, hand: _Hand) -> Ran:
        """A process that died is the finding of the seed that it was at; another takes its place."""
        self._let_go(hand)
        self._hire()
        return broken(hand.seed, f"its process ended with status {hand.process.exitcode}")

    def _give(self, hand: _Hand, seed: int) -> None:
        hand.seed = seed
        # One that has just died is noticed when its answer is waited for.
        with suppress(OSError):
            hand.pipe.send(seed)

    def _let_go(self, hand: _Hand) -> None:
        self._hands.remove(hand)
        hand.pipe.close()
        hand.process.join()

    def _hire(self) -> None:
        seed = next(self._left, None)
        if seed is None:
            return
        ours, theirs = cast("tuple[Connection, Connection]", connection.Pipe())
        process = self._context.Process(target=_work, args=(self._order, theirs), daemon=True)
        with _uninterrupted():
            process.start()
        theirs.close()
        hand = _Hand(process, ours, seed)
        self._hands.append(hand)
        self._give(hand, seed)


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
