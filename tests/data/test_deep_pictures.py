"""Pictures with 16 bits a channel: bounded before they are decoded, converted strip by strip."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from matchlight.data.formats import decoding
from matchlight.data.formats.decoding import decode, thumbnail
from matchlight.pairs import BadPicture


def png(width: int, height: int, colour: int, channels: int) -> bytes:
    """A PNG of zeros with 16 bits a channel: a few kilobytes however large it is."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packed = zlib.compressobj(9)
    row = b"\0" * (1 + 2 * channels * width)
    body = b"".join(packed.compress(row) for _ in range(height)) + packed.flush()
    head = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("colour", "channels"), [(2, 3), (6, 4)])
def test_pixels_times_channels_times_depth_are_bounded_before_decoding(colour: int, channels: int) -> None:
    blob = png(100, 100, colour, channels)
    assert decode(blob, "a", max_pixels=2 * 10_000).size == (100, 100)
    for look in (decode, lambda *given, **more: thumbnail(*given, 8, **more)):
        with pytest.raises(BadPicture, match=f"{2 * channels} bytes.*megapixels so deep") as told:
            look(blob, "a", max_pixels=10_000)
        assert told.value.kind == "too large"


@pytest.mark.parametrize("mode", ["I;16", "I", "F", "RGBA", "LA", "P"])
def test_a_picture_converted_in_strips_is_the_same_as_at_once(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    rng = np.random.default_rng(0)
    if mode in ("RGBA", "LA", "P"):
        image = Image.fromarray(rng.integers(0, 255, (31, 17, 4), dtype=np.uint8)).convert(mode)
        image.info |= {"transparency": 3} if mode == "P" else {}
    else:
        kind = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
        image = Image.fromarray(rng.integers(0, 60_000, (31, 17)).astype(kind))
    whole = np.asarray(decoding._rgb(image))
    monkeypatch.setattr(decoding, "STRIP", 17 * 4)
    assert np.array_equal(np.asarray(decoding._rgb(image)), whole)


CODE = """
import resource, sys
from matchlight.data.formats.decoding import decode
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
decode(sys.stdin.buffer.read(), "a")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_small_file_of_many_deep_pixels_takes_little_more_than_its_pixels() -> None:
    blob = png(6_000, 6_000, 0, 1)
    done = subprocess.run([sys.executable, "-c", CODE], input=blob, capture_output=True, check=True)
    assert len(blob) < 200_000 and int(done.stdout) * 1024 < 12 * 6_000 * 6_000  # float64 alone would be 8, three times


def test_a_file_of_sixteen_bits_is_read_by_its_upper_byte() -> None:
    file = io.BytesIO()
    Image.fromarray(np.full((4, 4), 200 * 257, dtype=np.uint16)).save(file, "PNG")
    assert np.asarray(decode(file.getvalue(), "a"))[0, 0].tolist() == [200, 200, 200]
