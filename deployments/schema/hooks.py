"""Gives every request an address of its own.

The service slows an address down that fails too often. The load tests check that; here it would only hide the
other answers. The service is told to believe the header, as behind a proxy.
"""

import itertools

import schemathesis

addresses = itertools.count()


@schemathesis.hook
def before_call(_context, case, _arguments):
    n = next(addresses)
    case.headers = {**(case.headers or {}), "X-Forwarded-For": f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"}
