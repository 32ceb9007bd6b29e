"""A server that speaks just enough S3 and ignores the condition of a conditional put, as some servers do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        self.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, self.objects[self.path], with_body=False)

    def do_GET(self) -> None:
        self._answer(200 if self.path in self.objects else 404, self.objects.get(self.path, b""))

    def do_HEAD(self) -> None:
        self._answer(200 if self.path in self.objects else 404, self.objects.get(self.path, b""), with_body=False)

    def do_DELETE(self) -> None:
        self.objects.pop(self.path, None)
        self._answer(204, b"")

    def _answer(self, status: int, value: bytes, with_body: bool = True) -> None:
        self.send_response(status)
        self.send_header("ETag", f'"{md5(value).hexdigest()}"')
        self.send_header("Last-Modified", self.date_time_string())
        self.send_header("Content-Length", str(len(value) if with_body or self.command == "HEAD" else 0))
        self.end_headers()
        if with_body:
            self.wfile.write(value)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def lying_s3() -> Iterator[int]:
    """Run it; gives the port."""
    handler = type("Handler", (_Handler,), {"objects": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()
