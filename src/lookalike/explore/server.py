"""The routes of the page, and the server that answers them on this machine alone."""

from __future__ import annotations

import json
import secrets
import socket
from importlib import resources
from typing import TYPE_CHECKING, Any

from lookalike.explore.guarding import Guarded
from lookalike.utils.imports import needed_for

with needed_for("the page", "explore"):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from lookalike.explore.session import Session

HOST = "127.0.0.1"
FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
LONGEST_QUERY, LONGEST_BODY = 1000, 1000  # characters, bytes
USUAL, LARGEST = 40, 2**31 - 1


def make_app(session: Session, token: str, port: int) -> Guarded:
    """Make the application: functions run in threads, so that none keeps another waiting."""

    def sample(request: Request) -> Response:
        i = _id(request.path_params["id"], session.content.n)
        low, high = _number(request, "min", 0), _number(request, "max", LARGEST)
        return JSONResponse(session.sample(i, _number(request, "k", USUAL), low, high))

    def search(request: Request) -> Response:
        query = request.query_params.get("q", "")[:LONGEST_QUERY]
        return JSONResponse(session.search(query, _number(request, "k", USUAL)))

    def suspects(request: Request) -> Response:
        return JSONResponse(session.suspects(_number(request, "start", 0), _number(request, "k", USUAL)))

    def marks(request: Request) -> Response:
        return JSONResponse(session.marked(_number(request, "start", 0), _number(request, "k", USUAL)))

    def image(request: Request) -> Response:
        i = _id(request.path_params["id"], session.content.n)
        try:
            png = session.content.picture(request.path_params["tower"], i)
        except LookupError as error:
            raise HTTPException(404, str(error)) from error
        return Response(png, media_type="image/png", headers={"cache-control": "private, max-age=3600"})

    async def mark(request: Request) -> Response:
        body = await _json(request)
        first, second, same = body.get("first"), body.get("second"), body.get("same")
        if not isinstance(same, bool) or any(isinstance(i, bool) or not isinstance(i, int) for i in (first, second)):
            raise HTTPException(400, 'expected {"first": ID, "second": ID, "same": true or false}.')
        first, second = (_id(str(i), session.content.n) for i in (first, second))
        try:
            return JSONResponse(session.mark(first, second, same=same))
        except (ValueError, OSError) as error:
            raise HTTPException(409, f"the mark was not saved: {error}") from error

    routes = [
        Route("/api/about", lambda _: JSONResponse(session.about())),
        Route("/api/search", search),
        Route("/api/sample/{id}", sample),
        Route("/api/suspects", suspects),
        Route("/api/marks", marks),
        Route("/api/mark", mark, methods=["POST"]),
        Route("/image/{tower}/{id}", image),
        *(Route(f"/{name}", _file(*file)) for name, file in FILES.items()),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _as_json})
    return Guarded(app, token, {f"{HOST}:{port}", f"localhost:{port}"})


class Server:
    """A server on 127.0.0.1, with its address; it listens from the beginning, so that a taken port is known at once.

    Args:
        session: What it serves.
        port: The port; 0 for any that is free.

    Raises:
        ValueError: The port is taken, or not for this user.
    """

    def __init__(self, session: Session, port: int = 0) -> None:
        self._session, self._socket = session, socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port))
            self._socket.listen()
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise ValueError(f"port={port} cannot be used ({error}); leave it out for one that is free.") from None
        self.port, self._token = self._socket.getsockname()[1], secrets.token_urlsafe(24)
        app = make_app(session, self._token, self.port)
        options: dict[str, Any] = {"log_level": "error", "access_log": False, "server_header": False}
        self._server = uvicorn.Server(uvicorn.Config(app, lifespan="off", **options))

    @property
    def address(self) -> str:
        """The address to open, token included."""
        return f"http://{HOST}:{self.port}/{self._token}/"

    @property
    def has_started(self) -> bool:
        """Whether it answers."""
        return self._server.started

    def serve(self) -> None:
        """Answer until `stop` or Ctrl-C."""
        with self._session.running():
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Make `serve` return."""
        self._server.should_exit = True


def _file(name: str, media_type: str) -> Callable[[Request], Response]:
    content = (resources.files("lookalike.explore") / "page" / name).read_bytes()
    return lambda _: Response(content, media_type=media_type)


def _id(text: str, n: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) < n):
        raise HTTPException(404, f"there is no sample {text[:40]!r}; ids go from 0 to {n - 1}.")
    return int(text)


def _number(request: Request, name: str, usual: int) -> int:
    """Return a number of the address, at most what 32 bits hold."""
    text = request.query_params.get(name, "")
    if not text:
        return usual
    if not (text.isascii() and text.isdigit()):
        raise HTTPException(400, f"{name} must be a whole number, got {text[:40]!r}.")
    return min(int(text[:12]), LARGEST)


async def _json(request: Request) -> dict[str, Any]:
    """Read a small JSON object; other content types are what forms of other sites could send."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST_BODY:
            raise HTTPException(413, "too long.")
    try:
        content = json.loads(body) if request.headers.get("content-type") == "application/json" else None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise HTTPException(400, "expected a JSON object, as application/json.")
    return content


def _as_json(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these alone
    return JSONResponse({"error": error.detail}, status_code=error.status_code)
