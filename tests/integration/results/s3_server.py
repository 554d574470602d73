"""An S3 server of our own, on loopback."""

import contextlib
import logging
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from moto.server import ThreadedMotoServer
from obstore.store import S3Store as Bucket

BUCKET = "pail"


@dataclass(frozen=True)
class S3Server:
    url: str

    def listing(self) -> str:
        """Of the bucket, as the server tells it."""
        return httpx.get(f"{self.url}/{BUCKET}?list-type=2", timeout=30).text

    def look(self, uri: str) -> Mapping[str, Any]:
        """What it says of a file: the head of its answer to somebody with a key."""
        bucket = Bucket(
            BUCKET,
            endpoint=self.url,
            region="us-east-1",
            access_key_id="else",
            secret_access_key="else",
            client_options={"allow_http": True, "timeout": "30s"},
        )
        found = bucket.get(uri.removeprefix(f"s3://{BUCKET}/"))
        return {**found.attributes, **found.meta}

    def unfinished(self) -> str:
        return httpx.get(f"{self.url}/{BUCKET}?uploads", timeout=30).text

    @contextlib.contextmanager
    def refusing_all_keys(self) -> Generator[None]:
        """From here on it looks at keys, and knows none."""
        httpx.post(f"{self.url}/moto-api/reset-auth", content=b"0", timeout=30)
        try:
            yield
        finally:
            httpx.post(f"{self.url}/moto-api/reset-auth", content=b"inf", timeout=30)


@contextlib.contextmanager
def s3_server() -> Generator[S3Server]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        found = S3Server(f"http://{host}:{port}")
        httpx.put(f"{found.url}/{BUCKET}", timeout=60).raise_for_status()
        yield found
    finally:
        server.stop()
