"""Pictures as cameras and phones write them: turned, huge, HEIC and AVIF."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from matchlight.data.formats import decoding
from matchlight.data.formats.decoding import decode, decoded_size, thumbnail, true_size
from matchlight.data.near_duplicates import groups_of
from matchlight.indexing.thumbnails import thumbnails
from matchlight.pairs import BadPicture, Pairs

needs_avif = pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")


def halves() -> Image.Image:
    """60 x 40: red above, blue below."""
    image = Image.new("RGB", (60, 40), "red")
    image.paste("blue", (0, 20, 60, 40))
    return image


def saved(image: Image.Image, kind: str, **more: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def turned(kind: str) -> bytes:
    """A camera held upright: stored lying on its side, with the note that it must be turned."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(halves().rotate(90, expand=True), kind, exif=exif)


def red(image: Image.Image, at: tuple[int, int]) -> bool:
    r, _, b = image.getpixel(at)
    return r > 150 > b


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_turned_picture_is_upright_wherever_it_is_decoded(kind: str) -> None:
    blob = turned(kind)
    whole, (small, size) = decode(blob, "a"), thumbnail(blob, "a", 16)
    assert whole.size == size == true_size(whole) == decoded_size(blob, "a") == (60, 40)
    assert red(whole, (5, 5)) and not red(whole, (5, 35)) and red(small, (1, 1)) and not red(small, (1, 14))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
def test_a_picture_that_is_cut_anywhere_has_no_size(kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8)
    blob = saved(Image.fromarray(noise), kind)
    assert decoded_size(blob, "a") == (70, 90)
    for share in (0.1, 0.5, 0.9):
        with pytest.raises(BadPicture, match="cut or damaged|no readable picture"):
            decoded_size(blob[: int(share * len(blob))], "a")


def test_a_turned_picture_and_its_upright_copy_look_the_same(tmp_path: Path) -> None:
    (tmp_path / "turned.jpg").write_bytes(turned("JPEG"))
    (tmp_path / "upright.png").write_bytes(saved(halves(), "PNG"))
    source = Pairs.read(tmp_path).pictures
    assert len(set(groups_of(source).tolist())) == 1
    assert [size for _, size in thumbnails(source, np.arange(2))] == [(60, 40), (60, 40)]


def test_a_large_jpeg_is_decoded_at_a_smaller_scale_and_keeps_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "LARGE", 100_000)
    monkeypatch.setattr(decoding, "ENOUGH", 100)
    large, exif = halves().resize((800, 600)), Image.Exif()
    exif[0x0112] = 6
    reduced = decode(saved(large.rotate(90, expand=True), "JPEG", exif=exif), "a")
    assert reduced.size == (200, 150) and true_size(reduced) == (800, 600) and red(reduced, (9, 9))
    assert thumbnail(saved(large, "JPEG"), "a", 8)[1] == (800, 600)
    assert decode(saved(large, "PNG"), "a").size == (800, 600)
    assert decode(saved(large, "JPEG"), "a", max_pixels=130_000).size == (200, 150)  # within four times the limit
    with pytest.raises(BadPicture, match="at most 0.1 megapixels"):
        decode(saved(large, "JPEG"), "a", max_pixels=100_000)
    with pytest.raises(BadPicture, match="at most 0.13 megapixels"):
        decode(saved(large, "PNG"), "a", max_pixels=130_000)


@needs_avif
def test_avif_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.AVIF").write_bytes(saved(halves(), "AVIF"))
    assert red(Pairs.read(tmp_path).pictures.open(0), (5, 5))


def test_heic_is_read_and_named_by_its_kind_in_a_copy(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    heif.from_pillow(halves()).save(tmp_path / "a.heic", quality=90)
    blob = (tmp_path / "a.heic").read_bytes()
    assert red(decode(blob, "a"), (5, 5)) and thumbnail(blob, "a", 8)[1] == (60, 40)
    with pytest.raises(BadPicture, match="at most 0.001 megapixels"):
        decode(blob, "a", max_pixels=1000)
    with pytest.raises(BadPicture, match="'a'"):
        decode(blob[: len(blob) // 2], "a")
    from matchlight.data.formats.export import FileNames

    assert FileNames().give("a", 3, blob) == "00000003.heic"


def test_without_the_package_a_heic_picture_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(BadPicture, match=r"pip install 'matchlight\[heif\]'"):
        decode(b"\0\0\0\x18ftypheic" + bytes(64), "a")
