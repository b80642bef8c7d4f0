"""An address of etcd at which a publication is held on its way, and which may be gone."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

PATIENCE_S = 60.0


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Say nothing: who has asked may be dead."""


class Gateway:
    """Passes all on between a process and etcd, but for the transaction that writes one name.

    That one comes, and goes on when it is told to. What etcd says of it is told then to the maker,
    who may be dead. After the block nothing is passed on, whoever is connected.
    """

    def __init__(self, etcd: str, cluster: str, name: str = "") -> None:
        self._etcd = etcd
        self._key = base64.b64encode(f"/engram/{cluster}/names/{name}".encode()).decode()
        self._came, self._goes, self._done = (threading.Event() for _ in range(3))
        self._said = b""
        self._is_gone = False
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            """Passes a request on."""

            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                gateway._pass_on(self, b"")

            def do_POST(self) -> None:
                gateway._pass_on(self, self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def address(self) -> str:
        """Return where it answers: `HOST:PORT`."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_gone = True
        self._goes.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_until_it_came(self) -> None:
        """Wait until the transaction is on its way."""
        assert self._came.wait(PATIENCE_S), "nothing is published"

    def let_it_go_on(self) -> bytes:
        """Let etcd have the transaction, and give what it says of it."""
        self._goes.set()
        assert self._done.wait(PATIENCE_S), "etcd says nothing"
        return self._said

    def _is_written_by(self, transaction: dict[str, Any]) -> bool:
        written = [each.get("requestPut", {}) for each in transaction.get("success", ())]
        return any(each.get("key") == self._key for each in written)

    def _pass_on(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        is_held = handler.path == "/v3/kv/txn" and self._is_written_by(json.loads(body))
        if is_held:
            self._came.set()
            self._goes.wait()
        if self._is_gone:
            handler.close_connection = True
            return
        etcd = http.client.HTTPConnection(self._etcd, timeout=PATIENCE_S)
        try:
            kind = {"Content-Type": "application/json"}
            etcd.request(handler.command, handler.path, body or None, kind)
            answer = etcd.getresponse()
            said = answer.read()
        finally:
            etcd.close()
        if is_held:
            self._said = said
            self._done.set()
        with suppress(OSError):
            handler.send_response(answer.status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(said)))
            handler.end_headers()
            handler.wfile.write(said)
