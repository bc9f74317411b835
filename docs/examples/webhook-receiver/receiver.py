"""receiver.py takes events of seckill at $ADDR, each once, and prints the mail that it would send for a paid order."""

import base64
import hmac
import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(os.environ["SECKILL_EVENTS_SECRET"].removeprefix("whsec_"))
TOLERANCE = 300  # seconds that a signature is good for: who overhears a request cannot send it for ever
LARGEST = 1 << 20  # bytes
arrived = threading.Event()


def database():
    db = sqlite3.connect(os.environ.get("EVENTS_DB", "events.db"), timeout=5)
    db.execute("CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, event TEXT, done INT DEFAULT 0)")
    return db


def genuine(headers, body):
    """Standard Webhooks: one of the signatures is that of id, time and body as they came, and the time is now."""
    at = headers["webhook-timestamp"]
    signed = f"{headers['webhook-id']}.{at}.".encode() + body
    wanted = b"v1," + base64.b64encode(hmac.digest(SECRET, signed, "sha256"))
    given = headers["webhook-signature"].encode().split()  # several while a secret is replaced
    return abs(time.time() - int(at)) < TOLERANCE and any(hmac.compare_digest(wanted, one) for one in given)


class Receiver(BaseHTTPRequestHandler):
    timeout = 10  # seconds, as long as the sender waits

    def do_POST(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            body = self.rfile.read(min(int(headers["content-length"]), LARGEST))
            known = genuine(headers, body)
        except (KeyError, ValueError):
            known = False
        if known:
            with closing(database()) as db, db:  # one transaction: a 2xx says that the event is stored
                row = (headers["webhook-id"], body.decode())
                new = db.execute("INSERT OR IGNORE INTO events (id, event) VALUES (?, ?)", row).rowcount
            if not new:
                print("again, and not twice:", headers["webhook-id"], flush=True)
            arrived.set()
        self.send_response(204 if known else 401)
        self.end_headers()


def work():
    """What takes time is done behind the answer. A mail that was sent when the program died is sent again."""
    db = database()
    while True:
        for id, text in db.execute("SELECT id, event FROM events WHERE NOT done ORDER BY rowid").fetchall():
            event = json.loads(text)
            if event["type"] == "order.paid":
                order = event["data"]
                print(f"mail to {order['user_id']}: order {order['id']} is paid, show its code at the till", flush=True)
            with db:
                db.execute("UPDATE events SET done = 1 WHERE id = ?", (id,))
        arrived.wait()
        arrived.clear()


host, _, port = os.environ["ADDR"].rpartition(":")
server = ThreadingHTTPServer((host, int(port)), Receiver)
threading.Thread(target=work, daemon=True).start()
print(f"listens at http://{host}:{server.server_port}", flush=True)
server.serve_forever()
