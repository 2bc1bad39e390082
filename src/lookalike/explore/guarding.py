"""Let nobody in but the page itself: a token in every address, the right host, and no scripts but the page's own."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",  # or the token would travel with a link
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guarded:
    """An ASGI application behind `/TOKEN/`; everything else is refused with 403.

    Another site may make a browser send requests here, under its own name (DNS rebinding) or blindly. The first is
    refused because its Host header names that site, the second because it does not know the token.

    Args:
        app: The application, which sees paths without the token.
        token: The secret part of the address.
        hosts: The Host headers that are accepted, with the port.
    """

    def __init__(self, app: App, token: str, hosts: set[str]) -> None:
        self._app, self._token, self._hosts = app, token.encode(), hosts

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":  # "lifespan", which nothing here needs
            return
        headers = dict(scope["headers"])
        given, _, path = scope["path"].removeprefix("/").partition("/")
        is_known = hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

        async def send_with_headers(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message.get("headers", [])}
                more = {"cache-control": "no-store", **HEADERS}
                missing = [(k.encode(), v.encode()) for k, v in more.items() if k.encode() not in own]
                message = {**message, "headers": [*message.get("headers", []), *missing]}
            await send(message)

        if not is_known or headers.get(b"host", b"").decode("latin-1").lower() not in self._hosts:
            start = {"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]}
            await send_with_headers(start)
            await send({"type": "http.response.body", "body": b"Open the whole address that lookalike printed.\n"})
            return
        await self._app({**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}, receive, send_with_headers)
