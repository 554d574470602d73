"""Small pictures that are real files, and the same for the same inputs."""

import hashlib
import json
import struct
import zlib

SIDE = 16
KNOWN_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")


def png(digest: str, side: int = SIDE) -> bytes:
    """A picture whose pixels come from the digest alone."""
    pixels = b"".join(b"\0" + _row(digest, number, side) for number in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels, 1)), (b"IEND", b""))
    return KNOWN_STARTS[0] + b"".join(_chunk(kind, body) for kind, body in chunks)


def digest(*parts: object) -> str:
    """What tells two inputs apart; parts are JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def looks_like_a_picture(content: bytes) -> bool:
    return content.startswith(KNOWN_STARTS)


def _row(digest: str, number: int, side: int) -> bytes:
    start = hashlib.sha256(f"{digest}/{number}".encode()).digest()
    return (start * (side * 3 // len(start) + 1))[: side * 3]


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
