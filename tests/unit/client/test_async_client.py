"""The twin for programs with an event loop does the same."""

import asyncio
import inspect
import json

import httpx
import pytest

from herdsman.client import AsyncClient, AsyncJobHandle, Client, JobFailed, JobHandle
from tests.unit.client.served import Served, a_job, refused, said, stream, submitted

TWINS = [(Client, AsyncClient), (JobHandle, AsyncJobHandle)]


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_the_twins_have_the_same_methods_with_the_same_parameters(one: type, other: type) -> None:
    methods = {name for name in vars(one) if not name.startswith("_")}
    assert methods == {name for name in vars(other) if not name.startswith("_")}
    for name in methods:
        mine, theirs = (inspect.signature(getattr(each, name)) for each in (one, other))
        assert list(mine.parameters.values()) == list(theirs.parameters.values()), name


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
