"""buyer.py VOUCHER buys one unit at $SECKILL as the user of $TOKEN: prints where to pay, later the code, or why not."""

import json
import os
import random
import sys
import time
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def call(method, path):
    """Repeats until it is decided: the repeated call finds the order, or the payment, of the one before."""
    for attempt in range(10):  # over half a minute or longer
        pause = min(0.1 * 2**attempt, 10)
        request = Request(os.environ["SECKILL"] + "/api/v1" + path, method=method)
        request.add_header("Authorization", "Bearer " + os.environ["TOKEN"])
        try:
            try:
                response = urlopen(request, timeout=15)  # the longest answer is that of ?wait=10s
            except HTTPError as refusal:
                response = refusal
            with response:
                if response.status != 429 and response.status < 500:
                    return json.load(response)
                pause = int(response.headers.get("Retry-After", 0)) or pause
        except (OSError, HTTPException, ValueError):
            pass  # the answer is lost, and the order may be there
        time.sleep(pause * random.uniform(1, 1.5))  # not sooner than asked for, and not with all others
    return {"reason": "no answer; start again later, and it is still one unit"}


def main(voucher):
    order = call("POST", f"/vouchers/{voucher}/seckill")
    id = order.get("id") or order.get("order_id")  # of ALREADY_ORDERED, good news: an earlier attempt got it
    if order.get("code") in ("ENDED", "PAUSED"):  # since then; what was got before is kept, the newest first
        id = next((mine["id"] for mine in call("GET", f"/orders?voucher_id={voucher}").get("items", [])), None)
    if id:
        order = call("GET", f"/orders/{id}?wait=10s")
    while order.get("status") == "processing":
        order = call("GET", f"/orders/{id}?wait=10s")
    if order.get("status") == "unpaid":
        order = call("POST", f"/orders/{id}/pay")
    print(order.get("payment_url") or order.get("reason") or order.get("code") or order.get("status"))
    return "payment_url" in order or order.get("status") == "paid"


sys.exit(0 if main(sys.argv[1]) else 1)
