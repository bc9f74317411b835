"""Makes things whose ids exist: vouchers in every phase, and an order of everybody for one of them.

Usage: prepare.py API DIRECTORY. Reads the tokens of one administrator and three users, one a line, from the files
admin and users in DIRECTORY, and writes there the files that schemathesis.toml names: vouchers and orders,
quoted ids one a line, and peers.json, the three users for schemathesis.
"""

import json
import pathlib
import sys
import urllib.request

api, directory = sys.argv[1], pathlib.Path(sys.argv[2])
admin, *users = (directory / "admin").read_text().split() + (directory / "users").read_text().split()


def post(path, token, body):
    request = urllib.request.Request(
        api + path,
        data=json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["id"]


def voucher(stock, begin, end, state):
    draft = {"title": "For the document", "price": 1000, "face_value": 2500, "stock": stock}
    window = {"begin_at": f"{begin}-01-01T00:00:00Z", "end_at": f"{end}-01-01T00:00:00Z"}
    return post("/admin/vouchers", admin, {**draft, **window, "state": state})


live = voucher(100_000, 2020, 2120, "published")
vouchers = [
    live,
    voucher(0, 2020, 2120, "published"),  # sold out
    voucher(10, 2119, 2120, "published"),  # upcoming
    voucher(10, 2020, 2021, "published"),  # ended
    voucher(10, 2020, 2120, "paused"),
    voucher(10, 2020, 2120, "draft"),
]
orders = [post(f"/vouchers/{live}/seckill", user, {}) for user in (admin, *users)]

(directory / "vouchers").write_text("\n".join(map(json.dumps, vouchers)))
(directory / "orders").write_text("\n".join(map(json.dumps, orders)))
peers = [
    {"name": f"user-{n}", "fixedHeaders": [{"name": "Authorization", "value": "Bearer " + token}]}
    for n, token in enumerate(users, 1)
]
(directory / "peers.json").write_text(json.dumps({"auth": peers}))
