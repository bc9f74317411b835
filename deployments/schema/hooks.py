"""What the service needs while schemathesis asks it."""

import itertools
import time

import requests
import schemathesis

addresses = itertools.count()


@schemathesis.hook
def before_call(_context, case, _arguments):
    """Gives every request an address of its own, behind a proxy that the service believes.

    An address that fails too often has to wait, which would hide the other answers.
    """
    n = next(addresses)
    case.headers = {**(case.headers or {}), "X-Forwarded-For": f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"}


@schemathesis.hook
def after_call(_context, _case, response):
    """Waits for the end of a rebuild, because the sale answers 503 until then."""
    request = response.request
    if response.status_code != 202 or not request.url.endswith("/rebuild"):
        return
    audit = request.url.removesuffix("rebuild") + "audit"
    authorization = {"Authorization": request.headers["Authorization"]}
    for _ in range(300):
        if requests.get(audit, headers=authorization, timeout=30).json()["redis"]["state"] == "open":
            return
        time.sleep(0.1)
    raise TimeoutError(f"the rebuild does not end: {audit}")
