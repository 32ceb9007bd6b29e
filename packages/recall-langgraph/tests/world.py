"""The world that killed agents act on, as a process of its own that nobody kills: `python world.py`, prints its port.

GET  /RUN/looks/N      a read
POST /RUN/orders/N     an order; one for each Idempotency-Key, however often it is asked for
POST /RUN/charges/N    a charge, every time
GET  /RUN              what was done in a run: {"orders": [[n, key]], "charges": [[n, key]]}
"""

import json
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

done = defaultdict(lambda: {"orders": [], "charges": []})
lock = Lock()


class World(BaseHTTPRequestHandler):
    def do_GET(self):
        _, run, *what = self.path.split("/")
        with lock:
            self.answer({} if what else done[run])

    def do_POST(self):
        _, run, what, number = self.path.split("/")
        entry = [int(number), self.headers["Idempotency-Key"]]
        with lock:
            if what == "charges" or entry not in done[run][what]:
                done[run][what].append(entry)
            self.answer({"number": done[run][what].index(entry)})

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), World)
    print(server.server_port, flush=True)
    server.serve_forever()
