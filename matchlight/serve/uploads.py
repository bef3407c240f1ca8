"""Pictures that clients send: known by content, never by name; refused by size before a pixel is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import UploadFile
from starlette.exceptions import HTTPException

from matchlight.data.formats.decoding import decode
from matchlight.pairs import BadPicture
from matchlight.serve.rules import Limits

if TYPE_CHECKING:
    from PIL import Image

SIDE = 1024  # pixels of the longer side that the model is given; it looks at far fewer
STATUS = {"too large": 413, "unreadable": 415}


async def read(file: UploadFile, limits: Limits) -> bytes:
    """The bytes of an upload, up to the limit."""
    blob = await file.read(limits.upload_bytes + 1)
    await file.close()
    if len(blob) > limits.upload_bytes:
        raise HTTPException(413, f"pictures may have {limits.upload_bytes:,} bytes at most")
    return blob


def picture(blob: bytes, limits: Limits) -> Image.Image:
    """An RGB picture out of them, or a refusal; runs in a worker thread, as decoding takes time."""
    try:
        image = decode(blob, "the picture", max_pixels=limits.upload_pixels)
    except BadPicture as problem:
        raise HTTPException(STATUS.get(problem.kind, 415), str(problem).replace("'", "")) from None
    image.thumbnail((SIDE, SIDE))
    return image
