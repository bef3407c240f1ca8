"""Strangers: a hundred hostile uploads and paths are refused with 4xx, and no request of a fuzzer gives a 5xx."""

from __future__ import annotations

import io
import socket
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image
from serving import audit_of, picture, running

pytest.importorskip("fastapi")
from starlette.testclient import TestClient  # noqa: E402

from matchlight.serve import create  # noqa: E402
from matchlight.serve.rules import Limits  # noqa: E402

AT = "http://127.0.0.1:8000"
LIMITS = Limits(upload_bytes=300_000, upload_pixels=1_000_000, body_bytes=8_000, body_seconds=5)


def application(collection, folder):
    return create(collection[0], audit=audit_of(collection[1], folder), data=collection[1], limits=LIMITS)


@pytest.fixture(scope="module")
def app(collection, tmp_path_factory):
    return application(collection, tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def client(app) -> Iterator[TestClient]:
    with TestClient(app, base_url=AT, raise_server_exceptions=False) as client:
        yield client


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, body: bytes = b"", depth: int = 8, colour: int = 2) -> bytes:
    """A PNG whose header promises what it likes."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


def bmp(width: int, height: int) -> bytes:
    return (
        b"BM"
        + struct.pack("<IHHI", 54, 0, 0, 54)
        + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    )


def tiff(width: int, height: int) -> bytes:
    tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (279, 4, 1 << 30)]
    body = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + body + struct.pack("<I", 0)


def late_text(size: int) -> bytes:
    """A PNG with a compressed text of `size` bytes: a bomb that is no picture."""
    body = b"Comment\0\0" + zlib.compress(b"a" * size)
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    return head + chunk(b"zTXt", body) + chunk(b"IEND", b"")


@cache
def hostile_files() -> dict[str, bytes]:
    """Name -> bytes of what is no picture, half a picture, or far too much of one."""
    files = {
        "empty": b"",
        "text": b"hello",
        "zeros": b"\0" * 5_000,
        "html": b"<script>alert(1)</script>",
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
        "xxe": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><svg>&b;</svg>',
        "pdf": b"%PDF-1.4\n1 0 obj\n",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(r) file\n",
        "zip": b"PK\3\4" + b"\0" * 40,
        "elf": b"\x7fELF" + b"\0" * 60,
        "pickle": b"\x80\x04cos\nsystem\n(S'id'\ntR.",
        "psd": b"8BPS\0\1" + b"\0" * 60,
        "ico": b"\0\0\1\0\1\0" + b"\0" * 40,
        "fits": b"SIMPLE  =                    T" + b" " * 3_000,
        "wide png": png(100_000, 100_000),
        "thin png": png(4_000_000_000, 1),
        "bomb png": png(30_000, 30_000, b"\0" * 200_000),
        "zero png": png(0, 0),
        "odd png": png(8, 8, b"\0" * 10, depth=7),
        "palette png": png(8, 8, b"\0" * 72, colour=3),
        "short png": png(900, 900, b"\0" * 10),
        "text png": late_text(70_000_000),
        "wide bmp": bmp(60_000, 60_000),
        "negative bmp": bmp(-5, -7),
        "empty bmp": bmp(0, 0),
        "wide tiff": tiff(60_000, 60_000),
        "false tiff": tiff(64, 64),
        "wide gif": b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\0\0\0;",
        "bare gif": b"GIF89a",
        "ppm": b"P6 99999 99999 255\n",
        "ppm words": b"P6 a b c\n",
        "webp": b"RIFF\xff\xff\xff\xffWEBPVP8 " + b"\0" * 20,
        "too many bytes": picture("BMP", (400, 400)),
        "too many pixels": picture("PNG", (1_100, 1_100)),
    }
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
        whole = _noise(kind)
        for part in (0.02, 0.3, 0.6):
            files[f"{kind} cut at {part}"] = whole[: max(3, int(len(whole) * part))]
        files[f"{kind} head alone"] = whole[:12] + b"\xff" * 200
    return files


def _noise(kind: str) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((60, 40), 80).convert("RGB").save(file, kind)
    return file.getvalue()


PATHS = [
    *(f"/{'../' * n}etc/passwd" for n in (1, 3, 9)),
    *(f"/images/{'..%2f' * n}etc%2fpasswd" for n in (1, 3, 9)),
    *("/images/%2e%2e/%2e%2e/etc/passwd", "/images/....//etc/passwd", "/images/..;/etc/passwd", "/images//etc/passwd"),
    *(
        "/images/..%5c..%5cwindows",
        "/images/%00",
        "/images/0%00.jpg",
        "/images/0/../0.jpg",
        "/images/file:%2f%2f%2fetc",
    ),
    *(
        "/images/0x10",
        "/images/1e9",
        "/images/-1",
        "/images/%20",
        "/images/١%2f",
        "/images/99999999999999999999",
    ),
    *("/images/NaN", "/images/0.5", "/images/null", "/images/[0]", "/images/0;0", "/images/true"),
    *(
        "/page/../app.py",
        "/page/..%2fapp.py",
        "/page/%2e%2e%2fapp.py",
        "/page/.",
        "/page/",
        "/page/main.js%00",
        "/page/main.js/x",
    ),
    *(
        "/page/%252e%252e%252fapp.py",
        "/page/..%c0%afapp.py",
        "/page//etc/passwd",
        "/.git/config",
        "/.env",
        "/server-status",
    ),
    *(
        "/api/items/..%2f0",
        "/api/items/0/explain",
        "/api/items/0/explain?q=",
        "/api/items/a/neighbours",
        "/api/review/x",
    ),
    *("/api/review/-4", "/api/review/%2e%2e", "/api/search", "/api/search?q=a&top=99999999", "/api/search?q=a&top=x"),
    *(
        "/api/search?q=a&find=file",
        "/api/search?q=a&where=__class__=1",
        "/api/search?q=a&where=name=../",
        "/api/search?q=%00&top=-1",
    ),
    *(
        "/api/search?q=a&inside=nan,1;1,1;2,2",
        "/api/search?q=a&inside=inf,inf;1,1;2,2",
        "/docs",
        "/redoc",
        "/wp-login.php",
    ),
    *(
        "/api/items?count=0",
        "/api/items?seed=-1",
        "/api/review?limit=1e9",
        "/api/review?below=nan",
        "/api/review?state=x",
    ),
]


def test_there_are_a_hundred_of_them():
    assert sum(not _decodes(blob) for blob in hostile_files().values()) + len(PATHS) >= 100


@pytest.mark.parametrize("name", hostile_files())
def test_a_hostile_upload_is_refused(client, name):
    for label in ("a.png", "../../x.jpg"):
        answer = client.post("/api/search/image", files={"file": (label, hostile_files()[name], "image/png")})
        if not _decodes(hostile_files()[name]):
            assert 400 <= answer.status_code < 500, answer.text
            assert "Traceback" not in answer.text and "/matchlight/" not in answer.text


def _decodes(blob: bytes) -> bool:
    """Whether Pillow reads all of it after all, within the limits: then it is a picture like any other."""
    try:
        image = Image.open(io.BytesIO(blob), formats=("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"))
        fits = image.size[0] * image.size[1] <= LIMITS.upload_pixels and len(blob) <= LIMITS.upload_bytes
        if fits:
            image.load()
        return fits
    except Exception:
        return False


def test_every_hostile_path_is_refused_and_tells_nothing(collection, tmp_path):
    """As they are, by a real server: a client's library would tidy them up."""
    with running(str(collection[0]), "--audit", str(audit_of(collection[1], tmp_path))) as (_, address):
        host, port = address.split("/")[2].split(":")
        for path in PATHS:
            status, text = raw(host, int(port), path)
            assert 400 <= status < 500, (path, status)
            assert "root:" not in text and "import" not in text


def raw(host: str, port: int, path: str) -> tuple[int, str]:
    with socket.create_connection((host, port), timeout=20) as sock:
        sock.sendall(
            b"GET " + path.encode() + f" HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    return int(answer.split(b" ", 2)[1]), answer.decode("utf-8", "replace")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"--b\r\n",
        b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n',
        b"\r\n" * 2_000,
    ]
    + [b"--b\r\nContent-Disposition: form-data; name=" + b'"' * n + b"\r\n\r\n\r\n--b--" for n in (0, 1, 500)],
)
def test_a_form_that_is_none_is_refused(client, body):
    for kind in (
        "multipart/form-data; boundary=b",
        "multipart/form-data",
        "multipart/form-data; boundary=" + "b" * 200,
        "text/plain",
    ):
        answer = client.post("/api/search/image", content=body, headers={"content-type": kind})
        assert 400 <= answer.status_code < 500


def test_many_parts_and_fields_are_refused(client):
    files = [("file", (f"{n}.png", picture())) for n in range(1_200)]
    assert 400 <= client.post("/api/search/image", files=files).status_code < 500
    fields = {"file": ("a.png", picture())}
    assert client.post("/api/search/image", files=fields, data={"top": "x"}).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"decision": 1}',
        b"[" * 5_000,
        b'{"decision":"keep","row":1}',
        b'"\\ud800"',
        b"\xff\xfe",
        b"1e999",
    ],
)
def test_a_decision_that_is_none_is_refused_and_not_saved(client, app, body):
    before = dict(app.state.site.queue.journal.state.now)
    answer = client.post("/api/review/4", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422) and app.state.site.queue.journal.state.now == before


@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(words=st.text(min_size=1, max_size=60))
def test_any_words_can_be_asked(client, words):
    for path in ("/api/search", "/api/items/0/explain"):
        assert client.get(path, params={"q": words, "top": 3}).status_code in (200, 400, 422)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=12),
    kind=st.sampled_from(["PNG", "JPEG", "GIF", "WEBP"]),
)
def test_no_damage_to_a_picture_is_a_failure_of_the_server(client, flips, kind):
    blob = bytearray(_noise(kind))
    for place, value in flips:
        blob[place % len(blob)] = value
    answer = client.post("/api/search/image", files={"file": ("a", bytes(blob))}, data={"top": "1"})
    assert answer.status_code == 200 or 400 <= answer.status_code < 500


def test_a_fuzzer_that_reads_the_description_finds_no_failure(collection, tmp_path):
    """Schemathesis makes requests from the OpenAPI description, good ones and bad ones, for every route.

    It starts and stops the application itself, which therefore is not the one that other tests ask.
    """
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    app = application(collection, tmp_path)
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    statuses: Counter[int] = Counter()
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(
            deadline=None,
            max_examples=12,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(case=operation.as_strategy())
        def ask(case):
            response = case.call(base_url=AT, headers={"host": "127.0.0.1:8000"})
            statuses[response.status_code] += 1
            case.validate_response(response, checks=checks)

        ask()
    assert statuses.total() > 100 and statuses[200] > 30 and 421 not in statuses, statuses
