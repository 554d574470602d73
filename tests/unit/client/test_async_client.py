"""The client for programs with an event loop does the same."""

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, assert_type

import httpx
import pytest

from herdsman.client import (
    AsyncClient,
    AsyncJobHandle,
    AsyncLease,
    Client,
    JobFailed,
    JobHandle,
    Lease,
    calls,
)
from herdsman.jobs.wire import JobIn, JobOut, SubmittedOut
from tests.unit.client.local_server import Served, a_job, refused, said, stream, submitted

PAIRS = [(Client, AsyncClient), (JobHandle, AsyncJobHandle)]
NO_REQUEST = {"job", "lease"}


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS)
def test_each_operation_blocks_on_one_class_and_is_awaited_on_the_other(blocking: type, awaited: type) -> None:
    operations = {name for name in dir(blocking) if not name.startswith("_")} - NO_REQUEST
    assert operations == {name for name in dir(awaited) if not name.startswith("_")} - NO_REQUEST
    for name in operations:
        mine, theirs = getattr(blocking, name), getattr(awaited, name)
        assert inspect.signature(mine).parameters == inspect.signature(theirs).parameters, name
        assert mine.__name__ == theirs.__name__ == name
        assert mine.__doc__ == theirs.__doc__
        assert not inspect.iscoroutinefunction(mine), name
        assert not inspect.isasyncgenfunction(mine), name


def test_the_types_tell_which_of_them_block() -> None:
    served = Served(lambda _: submitted())
    with served.client() as client:
        job = assert_type(client.submit("image"), JobHandle)
        assert_type(job.status, Callable[[], str])
        assert_type(client.jobs(), Iterator[JobOut])
        assert assert_type(client.send(calls.submit(JobIn(type="image"))), SubmittedOut).created
        assert_type(client.lease(memory_mb=1), Lease)

    async def go() -> None:
        async with served.async_client() as client:
            job = assert_type(await client.submit("image"), AsyncJobHandle)
            assert_type(job.status, Callable[[], Coroutine[Any, Any, str]])
            assert_type(client.jobs(), AsyncGenerator[JobOut])
            assert assert_type(await client.send(calls.submit(JobIn(type="image"))), SubmittedOut).created
            assert_type(client.lease(memory_mb=1), AsyncLease)

    asyncio.run(go())


def test_a_job_from_its_submission_to_its_result() -> None:
    served = Served(
        submitted(),
        refused(409, "not-finished"),
        said(a_job("running")),
        httpx.ReadError("cut"),
        said(a_job("done")),
        said({"job_id": "job-1", "status": "done", "result": 42}),
        said({"job_id": "job-1", "status": "done"}),
    )

    async def go() -> object:
        async with served.async_client() as client:
            job = await client.submit("image", {"n": 1}, priority=3)
            result = await job.result(timeout=60)
            await job.retry()
            return result

    assert asyncio.run(go()) == 42
    assert served.bodies[0]["priority"] == 3


def test_a_failed_job_raises() -> None:
    served = Served(said({"job_id": "job-1", "status": "dead_letter"}), said(a_job("dead_letter")))

    async def go() -> None:
        async with served.async_client() as client:
            await client.job("job-1").result()

    with pytest.raises(JobFailed):
        asyncio.run(go())


def test_iterators_are_async() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            jobs = json.loads(request.content)["jobs"]
            return said({"jobs": [{"job_id": job["job_id"], "created": True} for job in jobs]})
        job_id = request.url.path.split("/")[2]
        return said({"job_id": job_id, "status": "done", "result": "r"})

    async def go() -> tuple[list[object], list[int | None], list[str]]:
        async with Served(answer).async_client() as client:
            results = [each async for each in client.map("image", range(5), window=2)]
        async with Served(stream(1), httpx.Response(204)).async_client() as client:
            events = [each.id async for each in client.events()]
        async with Served(said({"jobs": [a_job()], "next": None})).async_client() as client:
            jobs = [each.job_id async for each in client.jobs()]
        return results, events, jobs

    assert asyncio.run(go()) == (["r"] * 5, [1], ["job-1"])
