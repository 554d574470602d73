"""The twin of `Lease`, for programs with an event loop."""

import asyncio
from typing import Self

from herdsman.client.lease import BEATS, Held, Wanted
from herdsman.client.transport import Transport
from herdsman.core.errors import HerdsmanError


class AsyncLease(Held):
    """Use it with `async with`; heartbeats are sent by a task of its own.

    Code that blocks the event loop keeps them back: `check` and `lost` tell the truth all the same.
    """

    def __init__(self, transport: Transport, asked: Wanted) -> None:
        super().__init__(transport, asked)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.take()
        self._task = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
        await self.give_back()

    async def _keep(self) -> None:
        pause = self.pause()
        while not self.lost.is_set():
            await asyncio.sleep(pause)
            try:
                await self.beat()
                pause = self.pause()
            except HerdsmanError:
                pause = self.pause() / BEATS
