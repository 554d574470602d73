"""Makes pictures of pages small: flat colours and the same letters again and again are what deflate likes best."""

import struct
import zlib
from collections.abc import Iterator

SIGNATURE = 8
RGB = 3
"""Bytes of a point, as Chromium writes them."""


def packed(png: bytes) -> bytes:
    """The same picture without filters, which help photographs and spoil repetition."""
    chunks = list(_chunks(png))
    (_, head), *_, end = chunks
    width, height, depth, colour = struct.unpack(">IIBB", head[:10])
    assert (depth, colour) == (8, 2), "a picture without transparency was expected"
    points = zlib.decompress(b"".join(content for kind, content in chunks if kind == b"IDAT"))
    rows = b"".join(b"\0" + row for row in _rows(points, width * RGB, height))
    return png[:SIGNATURE] + b"".join(
        _written(*each) for each in ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), end)
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = SIGNATURE
    while place < len(png):
        (length,) = struct.unpack_from(">I", png, place)
        yield png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        place += length + 12


def _written(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _rows(points: bytes, length: int, height: int) -> Iterator[bytes]:
    above = bytes(length)
    for number in range(height):
        begin = number * (length + 1)
        above = _unfiltered(points[begin], points[begin + 1 : begin + 1 + length], above)
        yield above


def _unfiltered(kind: int, given: bytes, above: bytes) -> bytes:
    if kind == 0:
        return given
    row = bytearray(given)
    for index, difference in enumerate(given):
        left = row[index - RGB] if index >= RGB else 0
        corner = above[index - RGB] if index >= RGB else 0
        guess = (0, left, above[index], (left + above[index]) // 2, _paeth(left, above[index], corner))[kind]
        row[index] = (difference + guess) & 0xFF
    return bytes(row)


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda each: abs(guess - each))
