"""Who may ask, and how much: every request passes here before any route sees it, every answer on its way out.

- Host: a page elsewhere can make its own name point at this machine (DNS rebinding) and then read what it likes, so
  only the names this server goes by are answered.
- Origin: a page elsewhere can make a browser post here, so a post that says where it comes from must come from here.
- Token: on any address but this machine's own; by header, or by a cookie that opening `/?token=...` sets. Wrong ones
  are slowed down (wrong_tokens.py).
- Questions of one client have a limit (allowances.py), unless it is on this machine: a client that asks without end
  would keep the model from everybody else.
- Bodies end at a limit of bytes and of seconds, whatever their headers promise.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from matchlight.serve.allowances import Allowances
from matchlight.serve.counters import Counters
from matchlight.serve.rules import Limits, Rules, is_remote
from matchlight.serve.wrong_tokens import WrongTokens

SAFE = ("GET", "HEAD", "OPTIONS")
FREE_OF_CHARGE = ("/api/health", "/api/metrics")  # never counted: monitors ask them
OPEN = ("/api/health", "/page/style.css", "/page/flame.svg")  # answered without a token: they say nothing of the data
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


@dataclass(frozen=True)
class Refusal:
    """Why a request stops here."""

    status: int
    message: str
    retry_after: int | None = None  # seconds


class Guard:
    """The rules around an application."""

    def __init__(self, app: ASGIApp, rules: Rules, counters: Counters):
        self.app, self.rules, self.counters = app, rules, counters
        self.wrong = WrongTokens()
        self.questions = Allowances(rules.limits.client_questions, rules.limits.client_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request: refused here, or passed on; its answer gets our headers and is counted."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), [500]

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                message = {**message, "headers": _with_ours(message.get("headers", []), scope["path"])}
            await send(message)

        self.counters.in_flight += 1
        try:
            await self._pass(scope, receive, answer)
        finally:
            self.counters.in_flight -= 1
            self.counters.count(scope, status[0], time.perf_counter() - began)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        most = self._most(scope)
        refusal = self._foreign(scope, headers) or self._too_often(scope) or _too_large(headers, most)
        if refusal:
            await _drain(headers, receive, self.rules.limits)
            await _refuse(send, refusal)
        elif self.rules.token is None or scope["path"] in OPEN:
            await self.app(scope, self._counted(receive, most), send)
        else:
            await self._with_token(self.rules.token, scope, headers, self._counted(receive, most), send)

    def _most(self, scope: Scope) -> int:
        limits = self.rules.limits
        return limits.upload_bytes + limits.body_bytes if scope["path"] == "/api/search/image" else limits.body_bytes

    def _foreign(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        host = headers.get("host", "")
        if [name for name, _ in scope["headers"]].count(b"host") != 1 or not self.rules.knows(host):
            return Refusal(421, "this server does not go by that name; start it with --allow-host NAME if it should")
        if scope["method"] in SAFE:
            return None
        origin = headers.get("origin")
        if origin is not None and (urlsplit_netloc(origin) or "") != host.lower():
            return Refusal(403, "posts from other sites are not accepted")
        if origin is None and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return Refusal(403, "posts from other sites are not accepted")
        return None

    def _too_often(self, scope: Scope) -> Refusal | None:
        """Whether a client of another machine has asked more than its share; pictures and the page's files are free."""
        address = _client(scope)
        if not scope["path"].startswith("/api/") or scope["path"] in FREE_OF_CHARGE or not is_remote(address):
            return None
        if wait := self.questions.wait(address):
            return Refusal(429, "too many questions from your address; try again later", math.ceil(wait))
        self.questions.take(address)
        return None

    def _counted(self, receive: Receive, most: int) -> Receive:
        """`receive` that stops at so many bytes or seconds; what it raises becomes the answer."""
        seen, until = 0, time.monotonic() + self.rules.limits.body_seconds
        whole = False

        async def limited() -> Message:
            nonlocal seen, whole
            if whole:  # nothing more can come but the end of the connection
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.01, until - time.monotonic()))
            except TimeoutError:
                raise HTTPException(408, "the request took too long to arrive") from None
            seen += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if seen > most:
                raise HTTPException(413, f"at most {most:,} bytes")
            return message

        return limited

    async def _with_token(
        self, token: str, scope: Scope, headers: dict[str, str], receive: Receive, send: Send
    ) -> None:
        port = urlsplit(f"//{headers['host']}").port or 80
        cookie = f"matchlight-{port}"  # cookies do not tell ports apart, and two servers may have two tokens
        asked, client = _asked(scope), _client(scope)
        given = [one for one in (*asked, *_tokens(headers, cookie)) if not self.wrong.is_known(client, one)]
        if given and (wait := self.wrong.wait(client)):
            await _refuse(send, Refusal(429, "too many wrong tokens; try again later", math.ceil(wait)))
        elif any(same(one, token) for one in asked):
            await _welcome(send, f"{cookie}={token}; Path=/; HttpOnly; SameSite=Strict")
        elif any(same(one, token) for one in given):
            await self.app(scope, receive, send)
        else:
            for one in given:
                self.wrong.note(client, one)
            await _ask_for_token(scope, send)


def _client(scope: Scope) -> str:
    """The address that asks."""
    return str((scope.get("client") or ("",))[0])


async def _ask_for_token(scope: Scope, send: Send) -> None:
    if scope["path"] == "/":
        await _refuse(send, Refusal(401, _token_page()), "text/html; charset=utf-8")
    else:
        await _refuse(send, Refusal(401, "a token is needed: Authorization: Bearer TOKEN"))


def _asked(scope: Scope) -> list[str]:
    """The token in the address of the page."""
    query = scope["query_string"].decode("latin-1")
    if scope["path"] != "/" or "token=" not in query:
        return []
    return parse_qs(query, max_num_fields=32).get("token", [])[:1]


def same(given: str, token: str) -> bool:
    """Compared in a time that says nothing of how much was right."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


def urlsplit_netloc(origin: str) -> str | None:
    """`host:port` of an Origin header; None if it is none."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def _tokens(headers: dict[str, str], cookie: str) -> list[str]:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    tokens = [bearer.strip()] if scheme.lower() == "bearer" else []
    try:
        jar = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return tokens
    return [*tokens, *([jar[cookie].value] if cookie in jar else [])]


def _too_large(headers: dict[str, str], most: int) -> Refusal | None:
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or len(length) > 18:
        return Refusal(400, "content-length is no number")
    return Refusal(413, f"at most {most:,} bytes") if int(length) > most else None


async def _drain(headers: dict[str, str], receive: Receive, limits: Limits) -> None:
    """Read some of an unwanted body: a browser that is still sending would not see the answer."""
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return
    left = 2 * limits.upload_bytes
    try:
        async with asyncio.timeout(min(5.0, limits.body_seconds)):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b"")) + 1
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return


async def _refuse(send: Send, refusal: Refusal, kind: str = "application/json") -> None:
    text = json.dumps({"detail": refusal.message}) if kind == "application/json" else refusal.message
    headers = [(b"content-type", kind.encode())]
    headers += [(b"www-authenticate", b"Bearer")] if refusal.status == 401 else []
    headers += [] if refusal.retry_after is None else [(b"retry-after", str(refusal.retry_after).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


async def _welcome(send: Send, cookie: str) -> None:
    headers = [(b"location", b"/"), (b"set-cookie", cookie.encode())]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _with_ours(headers: Iterable[tuple[bytes, bytes]], path: str) -> list[tuple[bytes, bytes]]:
    theirs = list(headers)
    known = {name.lower() for name, _ in theirs}
    ours = dict(HEADERS)
    if b"cache-control" not in known:
        ours["cache-control"] = "no-store"
    return [*theirs, *((name.encode(), value.encode()) for name, value in ours.items() if name.encode() not in known)]


@cache
def _token_page() -> str:
    """The page that asks for the token."""
    return (Path(__file__).parent / "page" / "token.html").read_text(encoding="utf-8")
