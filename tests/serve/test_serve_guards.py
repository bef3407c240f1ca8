"""Who may ask: names, origins, tokens, limits of bytes and seconds, and the headers of every answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import in_own_loop, picture, request, running

pytest.importorskip("fastapi")
from starlette.testclient import TestClient  # noqa: E402

from matchlight.cli import main  # noqa: E402
from matchlight.core import BadInput  # noqa: E402
from matchlight.serve import create  # noqa: E402
from matchlight.serve.guards import HEADERS  # noqa: E402
from matchlight.serve.rules import Limits, Rules, host_name  # noqa: E402
from matchlight.serve.wrong_tokens import FREE, SECONDS, WrongTokens  # noqa: E402

AT, TOKEN = "http://127.0.0.1:8000", "a-long-enough-word"


@pytest.fixture(scope="module")
def client(collection) -> Iterator[TestClient]:
    limits = Limits(upload_bytes=50_000, body_bytes=1_000, body_seconds=0.5)
    with TestClient(create(collection[0], limits=limits), base_url=AT) as client:
        yield client


@pytest.fixture(scope="module")
def closed(collection) -> Iterator[TestClient]:
    app = create(collection[0], host="0.0.0.0", token=TOKEN, allow_hosts=["Photos.example"])
    with TestClient(app, base_url="http://192.168.1.9:8000", follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "localhost.:80"])
def test_this_machines_own_names_are_answered(client, host):
    assert client.get("/api/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "10.0.0.1", "", "a b", "localhost:x", "[::1"],
)
def test_a_name_that_was_made_to_point_here_is_refused(client, host):
    answer = client.get("/api/health", headers={"host": host})
    assert answer.status_code == 421 and "allow-host" in answer.json()["detail"]


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:8000", "http://127.0.0.1:9", "x://127.0.0.1:8000"]
)
def test_a_post_from_another_site_is_refused(client, origin):
    file = {"file": ("a.png", picture())}
    assert client.post("/api/search/image", files=file, headers={"origin": origin}).status_code == 403


def test_a_post_from_the_page_itself_or_from_a_program_is_answered(client):
    for headers in ({"origin": AT}, {}, {"sec-fetch-site": "same-origin"}):
        assert (
            client.post("/api/search/image", files={"file": ("a.png", picture())}, headers=headers).status_code == 200
        )
    cross = {"sec-fetch-site": "cross-site"}
    assert client.post("/api/search/image", files={"file": ("a.png", picture())}, headers=cross).status_code == 403


def test_every_answer_even_a_refusal_carries_the_headers_that_protect_the_browser(client):
    for answer in (client.get("/"), client.get("/api/none"), client.get("/", headers={"host": "evil.example"})):
        assert all(answer.headers[name] == value for name, value in HEADERS.items()), answer.url
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert client.get("/api/health").headers["cache-control"] == "no-store"


def test_a_body_is_refused_by_its_length_before_it_is_read_and_by_its_bytes_if_it_does_not_say(client):
    big = picture("BMP", (200, 200))
    assert client.post("/api/search/image", files={"file": ("a.bmp", big)}).status_code == 413
    parts = (b"x" * 10_000 for _ in range(20))
    kind = {"content-type": "multipart/form-data; boundary=b"}
    assert client.post("/api/search/image", content=parts, headers=kind).status_code == 413
    assert (
        client.post("/api/review/1", content=b"{" * 2_000, headers={"content-type": "application/json"}).status_code
        == 413
    )


def test_without_the_token_nothing_of_the_data_is_told(closed):
    for path in (
        "/api/search?q=a",
        "/api/items/0",
        "/images/0",
        "/openapi.json",
        "/api/review",
        "/api/metrics",
        "/?token=wrong",
    ):
        answer = closed.get(path)
        assert answer.status_code == 401 and "ball" not in answer.text, path
    assert closed.get("/api/health").status_code == 200
    assert "asks for a token" in closed.get("/").text


def test_the_token_opens_by_header_and_by_the_cookie_that_its_address_sets(closed):
    assert closed.get("/api/items/0", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert closed.get("/api/items/0", headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
    welcome = closed.get(f"/?token={TOKEN}")
    assert welcome.status_code == 303 and welcome.headers["location"] == "/"
    cookie = welcome.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert closed.get("/api/items/0", headers={"cookie": cookie.split(";")[0]}).status_code == 200
    closed.cookies.clear()


def test_a_client_of_another_machine_may_ask_so_often_and_then_waits_its_turn(collection):
    limits = Limits(client_questions=3, client_seconds=60.0)
    app = create(collection[0], limits=limits)
    far, near = (TestClient(app, base_url=AT, client=(address, 5000)) for address in ("192.0.2.7", "127.0.0.1"))
    with far:
        asked = [far.get("/api/items", params={"count": 1}).status_code for _ in range(5)]
        assert asked == [200, 200, 200, 429, 429]
        refused = far.get("/api/about")
        assert 0 < int(refused.headers["retry-after"]) <= 60 and "your address" in refused.json()["detail"]
        assert far.get("/images/0").status_code == far.get("/api/health").status_code == far.get("/").status_code == 200
        assert {near.get("/api/items").status_code for _ in range(5)} == {200}


def test_wrong_tokens_are_slowed_down_and_a_stale_cookie_is_not_a_guess(collection):
    app = create(collection[0], host="0.0.0.0", token=TOKEN)
    with TestClient(app, base_url="http://192.168.1.9:8000") as client:

        def ask(token: str) -> int:
            return client.get("/api/items/0", headers={"authorization": f"Bearer {token}"}).status_code

        assert {ask("left-open-page") for _ in range(50)} == {401}
        assert ask(TOKEN) == 200
        assert {ask(f"guess-{number}") for number in range(FREE - 1)} == {401}
        assert {ask(f"guess-{number}") for number in range(100, 150)} == {429}
        assert ask(TOKEN) == 429  # not looked at: an answer would tell a right guess from a wrong one
        assert client.get("/api/items/0").status_code == 401 and client.get("/api/health").status_code == 200
        refusal = client.get("/?token=guess")
        assert refusal.status_code == 429 and int(refusal.headers["retry-after"]) >= 1


def test_an_address_may_guess_again_after_a_while_and_others_are_not_held_up():
    now = [0.0]
    wrong = WrongTokens(clock=lambda: now[0])
    for number in range(FREE):
        assert wrong.wait("10.0.0.1") == 0
        wrong.note("10.0.0.1", f"guess-{number}")
    assert wrong.wait("10.0.0.1") == SECONDS and wrong.wait("10.0.0.2") == 0
    now[0] = SECONDS
    assert wrong.wait("10.0.0.1") == 0
    wrong.note("2001:db8::1", "guess")
    assert wrong.is_known("2001:db8::2", "guess") and not wrong.is_known("2001:db8:1::2", "guess")


def test_an_open_address_is_known_by_its_numbers_and_the_names_it_was_given(closed):
    token = {"authorization": f"Bearer {TOKEN}"}
    for host, status in (("10.1.2.3:8000", 200), ("photos.example", 200), ("evil.example", 421)):
        assert closed.get("/api/items/0", headers={**token, "host": host}).status_code == status


def test_an_address_others_can_reach_needs_a_token(capsys, collection):
    assert main(["serve", str(collection[0]), "--host", "0.0.0.0"]) == 2
    told = capsys.readouterr().err
    assert "token" in told and told.count("\n") == 1
    assert main(["serve", str(collection[0]), "--host", "0.0.0.0", "--token", "short"]) == 2
    for host in ("192.168.0.2", "::", "example.org"):
        with pytest.raises(BadInput, match="token"):
            Rules.of(host, None)
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        Rules.of(host, None)


def test_a_port_that_is_taken_and_an_index_that_is_none_are_one_line_each(capsys, collection, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", str(collection[0]), "--port", str(taken.getsockname()[1])]) == 2
    assert main(["serve", str(tmp_path), "--port", "0"]) == 2
    assert main(["serve", str(collection[0]), "--port", "0", "--audit", str(tmp_path)]) == 2
    told = capsys.readouterr().err.strip().split("\n")
    assert len(told) == 3 and "cannot listen" in told[0] and "not an index" in told[1] and "summary.json" in told[2]


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=40))
def test_no_text_in_a_host_header_is_an_exception(text):
    rules = Rules.of("127.0.0.1", None)
    name = host_name(text)
    assert name is None or isinstance(name, str)
    assert rules.knows(text) in (True, False)


def with_connections(job, app=None, **settings):
    """What `job(connect)` gives beside a server on 127.0.0.1 whose protocol has these settings."""
    import uvicorn
    from fastapi import FastAPI

    from matchlight.serve.server import Patient, bound

    hasty = type("Hasty", (Patient,), settings)
    sock = bound("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app or FastAPI(), http=hasty, log_level="error", lifespan="off"))

    async def run():
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            return await job(lambda: asyncio.open_connection(*sock.getsockname()))
        finally:
            server.should_exit = True
            await serving

    return in_own_loop(run())


WHOLE, HALF = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: "


@pytest.mark.parametrize("sent", [[HALF], [WHOLE, HALF], [WHOLE, WHOLE, HALF], [WHOLE + HALF, b"x"]])
def test_a_connection_that_never_finishes_its_request_is_closed(sent):
    async def answers(connect) -> bytes:
        reader, writer = await connect()
        seen = b""
        for part in sent:
            writer.write(part)
            if part.startswith(WHOLE):
                seen += await reader.readuntil(b'Not Found"}')
        seen += await asyncio.wait_for(reader.read(), 60)  # ends when the server closes the connection
        writer.close()
        return seen

    seen = with_connections(answers, limit=0.3)
    assert seen.count(b"HTTP/1.1 404") == sum(part.startswith(WHOLE) for part in sent)


def test_a_head_that_comes_byte_by_byte_does_not_wind_up_the_clock():
    async def dribbled(connect) -> int:
        reader, writer = await connect()
        writer.write(WHOLE)
        await reader.readuntil(b'Not Found"}')
        writer.write(HALF)
        for count in range(2_000):
            writer.write(b"x")
            if reader.at_eof():
                return count
            with suppress(TimeoutError, ConnectionError):
                await asyncio.wait_for(reader.read(1), 0.02)
        return 2_000

    assert with_connections(dribbled, limit=0.3) < 2_000


def test_connections_that_wait_make_room_for_an_honest_client():
    async def crowded(connect) -> bytes:
        idle = []
        for number in range(60):
            reader, writer = await connect()
            writer.write(WHOLE if number % 2 else HALF)
            idle.append((reader, writer))
        reader, writer = await connect()
        writer.write(WHOLE)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)
        gone = [await asyncio.wait_for(one.read(), 60) for one, _ in idle[:50:2]]  # those closed first: no answer
        for _, one in [*idle, (reader, writer)]:
            one.close()
        return answer + b"".join(gone)

    assert with_connections(crowded, limit=600.0, most=10) == b"HTTP/1.1 404 Not Found\r\n"


def test_a_client_that_reads_nothing_is_dropped():
    answering = asyncio.Event()  # a busy machine may take long to get there

    async def large(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        answering.set()
        await send({"type": "http.response.body", "body": b"x" * 30_000_000})

    async def unread(connect) -> int:
        reader, writer = await connect()
        writer.transport.pause_reading()
        writer.write(WHOLE)
        await asyncio.wait_for(answering.wait(), 60)
        await asyncio.sleep(1.0)
        writer.transport.resume_reading()
        with suppress(ConnectionError):
            return len(await asyncio.wait_for(reader.read(), 60))
        return 0

    assert with_connections(unread, app=large, patience=0.3) < 30_000_000


def test_a_body_that_never_comes_is_told_so(client, collection):
    app = create(collection[0], limits=Limits(body_seconds=0.4))
    sent: list[dict] = []

    async def never() -> dict:
        await asyncio.sleep(30)
        return {}

    async def keep(message: dict) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"10")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/review/1",
        "raw_path": b"/api/review/1",
        "query_string": b"",
    }
    scope |= {"headers": headers, "http_version": "1.1", "scheme": "http", "server": ("localhost", 80), "client": None}
    in_own_loop(app(scope, never, keep))
    assert sent[0]["status"] == 408
    app.state.site.pool.close()
    app.state.site.live.close()


def test_a_real_server_prints_its_address_answers_and_ends_cleanly(collection):
    with running(str(collection[0])) as (process, address):
        assert request(address)[0] == 200
        for path in (
            "../../../etc/passwd",
            "images/..%2f..%2f..%2fetc%2fpasswd",
            "page/..%2fapp.py",
            "page/%2e%2e/app.py",
        ):
            status, body = request(address + path)
            assert 400 <= status < 500 and b"root" not in body and b"import" not in body
        assert request(address, Host="evil.example")[0] == 421
        process.terminate()
        assert process.wait(15) == 0
