"""Talks to a ComfyUI as a client without any cleverness would: for tests of the fake."""

import json
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import httpx
from websockets.sync.client import ClientConnection, connect

from herdsman.testing.fakes.comfyui import FakeComfyUI

PATIENCE_S = 60.0

Message = dict[str, Any]


def node(class_type: str, **inputs: object) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def a_picture(*, seed: int = 1, text: str = "a cat", steps: int = 2, **sampler: object) -> dict[str, Any]:
    """The workflow that everybody knows."""
    return {
        "4": node("CheckpointLoaderSimple", ckpt_name="a.safetensors"),
        "5": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "6": node("CLIPTextEncode", text=text, clip=["4", 1]),
        "7": node("CLIPTextEncode", text="", clip=["4", 1]),
        "3": node(
            "KSampler",
            model=["4", 0],
            seed=seed,
            steps=steps,
            cfg=7.0,
            sampler_name="euler",
            scheduler="normal",
            positive=["6", 0],
            negative=["7", 0],
            latent_image=["5", 0],
            denoise=1.0,
            **sampler,
        ),
        "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": node("SaveImage", images=["8", 0], filename_prefix="probe/norm"),
    }


def short(seconds: float = 0.0, **inputs: object) -> dict[str, Any]:
    """One silent node, and one that saves."""
    return {
        "1": node("HerdsmanSleep", seconds=seconds, **inputs),
        "2": node("SaveImage", images=["1", 0], filename_prefix="short"),
    }


class Talk:
    def __init__(self, fake: FakeComfyUI) -> None:
        self.fake = fake
        self.http = httpx.Client(base_url=fake.url, timeout=PATIENCE_S, trust_env=False)

    def post_prompt(self, workflow: Mapping[str, Any], **fields: object) -> httpx.Response:
        return self.http.post("/prompt", json={"prompt": workflow, **fields})

    def submit(self, workflow: Mapping[str, Any], **fields: object) -> str:
        answer = self.post_prompt(workflow, **{"prompt_id": str(uuid.uuid4()), "client_id": "C", **fields})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["prompt_id"])

    def submit_alone(self, workflow: Mapping[str, Any]) -> str:
        """Without a client id."""
        return str(self.post_prompt(workflow).json()["prompt_id"])

    def history(self, prompt_id: str) -> dict[str, Any]:
        return self.http.get(f"/history/{prompt_id}").json().get(prompt_id, {})

    def queue(self) -> tuple[list[str], list[str]]:
        """The ids of what runs and what waits."""
        body = self.http.get("/queue").json()
        return [each[1] for each in body["queue_running"]], [each[1] for each in body["queue_pending"]]

    def end(self, prompt_id: str) -> dict[str, Any]:
        """The history entry, waited for."""
        self.fake.wait_for(lambda: self.history(prompt_id), PATIENCE_S)
        return self.history(prompt_id)

    def running(self, prompt_id: str) -> None:
        self.fake.wait_for(lambda: prompt_id in self.queue()[0], PATIENCE_S)

    def run(self, workflow: Mapping[str, Any], **fields: object) -> tuple[str, dict[str, Any]]:
        prompt_id = self.submit(workflow, **fields)
        return prompt_id, self.end(prompt_id)

    @contextmanager
    def socket(self, client_id: str | None = "C", **more: Any) -> Generator[ClientConnection]:
        query = "" if client_id is None else f"?clientId={client_id}"
        address = f"{self.fake.url.replace('http', 'ws')}/ws{query}"
        options: dict[str, Any] = {"open_timeout": PATIENCE_S, "close_timeout": 5, "proxy": None, **more}
        connection = cast("ClientConnection", connect(address, **options))
        with connection:
            yield connection


def next_message(socket: ClientConnection) -> Message:
    """The next one in words; pictures are passed over."""
    while True:
        received = socket.recv(timeout=PATIENCE_S)
        if isinstance(received, str):
            return json.loads(received)


def next_picture(socket: ClientConnection) -> bytes:
    while True:
        received = socket.recv(timeout=PATIENCE_S)
        if isinstance(received, bytes):
            return received


def until(socket: ClientConnection, kind: str, **data: object) -> list[Message]:
    """All that is said up to a message of this kind, with this in it."""
    heard = [next_message(socket)]
    while heard[-1]["type"] != kind or not data.items() <= heard[-1]["data"].items():
        heard.append(next_message(socket))
    return heard


def until_the_end(socket: ClientConnection, prompt_id: str) -> list[Message]:
    return until(socket, "executing", node=None, prompt_id=prompt_id)


def kinds(messages: list[Message]) -> list[str]:
    return [message["type"] for message in messages]


@contextmanager
def talking(**options: Any) -> Generator[Talk]:
    """With a fake of its own."""
    with FakeComfyUI(**options) as fake:
        talk = Talk(fake)
        with talk.http:
            yield talk
