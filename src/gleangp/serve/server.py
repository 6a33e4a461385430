"""HTTP for one model, by the standard library: loopback by default, one origin, bodies of limited size."""

from __future__ import annotations

import ipaddress
import json
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import quote

from gleangp.cli._table_model import TableModel
from gleangp.serve.answers import Answers
from gleangp.serve.page import MAX_UPLOAD, POLICY, render

LOOPBACK = "127.0.0.1"
_OWN_NAMES = {"localhost", "127.0.0.1", "[::1]"}


class _Refused(Exception):
    """A request that is not answered: its status, and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def make_server(
    model: TableModel, name: str = "model", *, host: str = LOOPBACK, port: int = 0
) -> ThreadingHTTPServer:
    """A server that answers when `serve_forever` runs.

    Parameters
    ----------
    model : TableModel
        What `gleangp fit` wrote.
    name : str, default="model"
        Shown on the page.
    host : str, default="127.0.0.1"
        Address to listen on. Everybody who reaches another address than loopback can use the model.
    port : int, default=0
        0: a free one, which is in `server_address`.

    Returns
    -------
    ThreadingHTTPServer
    """
    answers = Answers(model)
    content = render(answers.describe(), name).encode()

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    class Handler(_Handler):
        def respond(self) -> tuple[str, bytes]:
            return _respond(self, answers, content, lock)

        def may_be_called(self, called: str) -> bool:
            return is_own_name(called, host)

    lock = Lock()  # predictions share what a model has cached
    return Server((host, port), Handler)


def is_own_name(called: str, host: str) -> bool:
    """Whether a `Host` header may name a server that listens on `host`.

    A page of another site can have its name resolve to this machine (DNS rebinding), but cannot make the
    browser send another name than its own. Addresses are not names, so that they are safe.
    """
    name = called.rsplit(":", 1)[0] if not called.endswith("]") else called
    if name in _OWN_NAMES or name.strip("[]") == host:
        return True
    if _is_loopback(host):
        return False
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name.lower() == socket.gethostname().lower()
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Handler(BaseHTTPRequestHandler):
    timeout = 30  # seconds that a client may be silent

    note = ""  # of the answer, for the page

    def respond(self) -> tuple[str, bytes]:
        raise NotImplementedError

    def may_be_called(self, called: str) -> bool:
        raise NotImplementedError

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        status, self.note = 200, ""
        try:
            self._check_origin()
            kind, body = self.respond()
        except _Refused as refused:
            status, kind, body = refused.status, *_as_json({"error": str(refused)})
        except (ValueError, KeyError, TypeError) as error:  # of the model: what is wrong with the rows
            status, kind, body = 400, *_as_json({"error": " ".join(str(error).split())})
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Note", quote(self.note))
        for header, value in (
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def _check_origin(self) -> None:
        called = self.headers.get("Host", "")
        if not self.may_be_called(called):
            raise _Refused(
                403, f"this server is not called {called!r}. Use its address, or start it with --host."
            )
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{called}":
            raise _Refused(403, f"requests from pages of {origin!r} are not answered.")

    def body(self, kind: str) -> bytes:
        """What was sent, if it is of this kind and not too long."""
        given = self.headers.get("Content-Type", "").split(";")[0].strip()
        if given != kind:
            raise _Refused(415, f"Content-Type is {given!r}, but should be {kind!r}.")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Refused(411, "Content-Length is missing.")
        if int(length) > MAX_UPLOAD:
            limit = f"{MAX_UPLOAD // 1_000_000} MB"
            raise _Refused(413, f"more than {limit} were sent. Use `gleangp predict` for larger tables.")
        return self.rfile.read(int(length))

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


def _respond(request: _Handler, answers: Answers, content: bytes, lock: Lock) -> tuple[str, bytes]:
    what = request.command, request.path.split("?")[0]
    if what == ("GET", "/"):
        return "text/html; charset=utf-8", content
    if what == ("GET", "/api/model"):
        return _as_json(answers.describe())
    if what == ("POST", "/api/predict"):
        rows = _json_of(request).get("rows", [])
        with lock:
            return _as_json({"predictions": answers.predict(rows)})
    if what == ("POST", "/api/curve"):
        asked = _json_of(request)
        with lock:
            return _as_json(answers.curve(dict(asked.get("row", {})), str(asked.get("along", ""))))
    if what == ("POST", "/api/table"):
        text = request.body("text/csv")
        with lock:
            table, request.note = answers.table(text)
            return "text/csv; charset=utf-8", table
    raise _Refused(404, f"there is nothing at {' '.join(what)!r}.")


def _json_of(request: _Handler) -> dict[str, Any]:
    found = json.loads(request.body("application/json"))
    if not isinstance(found, dict):
        raise ValueError("the body should be a JSON object.")
    return found


def _as_json(value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(value, default=_plain).encode()


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def run(model: TableModel, name: str, host: str, port: int) -> None:
    """Answer until Ctrl-C."""
    with make_server(model, name, host=host, port=port) as server:
        shown = f"[{host}]" if ":" in host else host
        print(f"http://{shown}:{server.server_address[1]}/   (Ctrl-C ends it)", flush=True)
        if not _is_loopback(host):
            print(f"everybody who reaches {host} can use this model", file=sys.stderr)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
