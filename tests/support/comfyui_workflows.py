"""ComfyUI workflows and a place for their files, for tests of the connector."""

import hashlib
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, cast

from herdsman.connectors.comfyui import ComfyUIConnector, open_connector
from herdsman.connectors.registry import Around
from herdsman.errors import NotFound, TooLarge
from herdsman.jobs.protocol import Finished, ServiceJob, StoredFile, Verdict, Working
from herdsman.ports import SystemClock


def render(seed: int = 1, *, steps: int = 4, text: str = "a cat", batch: int = 1) -> dict[str, dict[str, Any]]:
    """A workflow in API format as ComfyUI exports it."""
    how = {"cfg": 7.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
    links = {"latent_image": ["5", 0], "model": ["4", 0], "positive": ["6", 0], "negative": ["6", 0]}
    return {
        "4": _node("CheckpointLoaderSimple", "Load Checkpoint", ckpt_name="a.safetensors"),
        "5": _node("EmptyLatentImage", "Empty Latent", width=64, height=64, batch_size=batch),
        "6": _node("CLIPTextEncode", "Prompt v1.5", text=text, clip=["4", 1]),
        "3": _node("KSampler", "Sampler", seed=seed, steps=steps, **how, **links),
        "8": _node("VAEDecode", "Decode", samples=["3", 0], vae=["4", 2]),
        "9": _node("SaveImage", "Save", images=["8", 0], filename_prefix="cat"),
    }


def through_socket(seed: int = 1, *, batch: int = 1) -> dict[str, dict[str, Any]]:
    """The same, but its images come through the socket only."""
    return {**render(seed, batch=batch), "9": _node("SaveImageWebsocket", "Send", images=["8", 0])}


def one_node(class_type: str, /, **inputs: object) -> dict[str, dict[str, Any]]:
    return {"1": _node(class_type, class_type, **inputs)}


def new_id() -> str:
    return str(uuid.uuid4())


def a_job(workflow: object, job_id: str = "job-1", **more: Any) -> ServiceJob:
    payload = {"workflow": workflow, **more.pop("payload", {})}
    return ServiceJob(job_id=job_id, type="comfyui", payload=payload, **more)


def _node(class_type: str, title: str, /, **inputs: object) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs, "_meta": {"title": title}}


class MemoryStore:
    """A result store that keeps small files, and of large ones only what they were."""

    def __init__(self, keep: int = 1 << 20) -> None:
        self.files: dict[str, bytes] = {}
        self.agent = ""
        self.owners: dict[str, str] = {}
        self.largest_piece = 0
        self.limit: int | None = None
        self._keep = keep

    def for_agent(self, agent: str) -> "MemoryStore":
        self.agent = agent
        return self

    def put(self, job_id: str, name: str, content: Iterable[bytes]) -> StoredFile:
        digest, size, kept = hashlib.sha256(), 0, bytearray()
        for piece in content:
            self.largest_piece = max(self.largest_piece, len(piece))
            digest.update(piece)
            size += len(piece)
            if self.limit is not None and size > self.limit:
                raise TooLarge(f"{name} is over the limit of {self.limit} bytes")
            kept += piece if size <= self._keep else b""
        uri = f"s3://bucket/{job_id}/{name}"
        self.files[uri], self.owners[uri] = bytes(kept), self.agent
        kind = "image/png" if name.endswith(".png") else "application/octet-stream"
        return StoredFile(name=name, uri=uri, bytes=size, sha256=digest.hexdigest(), content_type=kind)

    def read(self, uri: str) -> Iterator[bytes]:
        if uri not in self.files or self.owners.get(uri, self.agent) != self.agent:
            raise NotFound(f"there is no file {uri}")
        yield self.files[uri]

    def find(self, job_id: str, name: str) -> str | None:
        uri = f"s3://bucket/{job_id}/{name}"
        return uri if uri in self.files else None

    def drop(self, job_id: str) -> None:
        for uri in [each for each in self.files if each.startswith(f"s3://bucket/{job_id}/")]:
            del self.files[uri]


class Bench:
    """A connector, where its files go, and what it said."""

    def __init__(self, url: str, **options: object) -> None:
        self.store = MemoryStore()
        self.said: list[str] = []
        around = Around(clock=SystemClock(), results=self.store, say=self.said.append)
        self.connector: ComfyUIConnector = open_connector({"url": url, **options}, around)

    def run(self, job: ServiceJob, external_id: str, *, silence: float = 5.0) -> Verdict:
        """From submission to a verdict that ends it."""
        return self.follow(self.connector.submit(job, external_id), silence=silence)

    def follow(self, external_id: str, *, silence: float = 5.0, patience: float = 60.0) -> Verdict:
        """As a worker does: it listens, and looks when it is told to, or hears nothing."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if isinstance(self.connector.listen(external_id, timedelta(seconds=silence)), Working):
                continue
            verdict = self.connector.check(external_id)
            if not isinstance(verdict, Working):
                return verdict
        raise AssertionError(f"{external_id} did not end within {patience} s")

    def result(self, job: ServiceJob, external_id: str, *, silence: float = 5.0) -> dict[str, Any]:
        verdict = self.run(job, external_id, silence=silence)
        assert isinstance(verdict, Finished), verdict
        return self.fetched(job, external_id, verdict)

    def fetched(self, job: ServiceJob, external_id: str, finished: Finished) -> dict[str, Any]:
        return cast("dict[str, Any]", self.connector.fetch(job, external_id, finished))
