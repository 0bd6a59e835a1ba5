"""The health check of certificates: which listeners' expire soon (rabbit_mgmt_wm_health_check_certificate_expiration).

A listener shows its certificate in a TLS handshake with itself in memory, so it is the one that clients get,
wherever it was loaded from.  The authorities that it trusts count, too.  Python's ssl decodes only
certificates that it has verified, so the end of validity is read from the DER bytes here (RFC 5280, 4.1).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from warrenmq.management.errors import bad_request
from warrenmq.management.http import Reply, Request, Route, encode
from warrenmq.management.site import Site

_DAYS = {"days": 1, "weeks": 7, "months": 30, "years": 365}
_MOST_DIGITS = 9
_UTC_TIME, _VERSION = 0x17, 0xA0
_LONG_LENGTH = 0x80


def check(site: Site, request: Request) -> Any:
    """GET /api/health/checks/certificate-expiration/within/unit: 503 if a certificate is valid for no longer than that."""
    within, unit = request.at["within"], request.at["unit"].lower()
    if not (within.isascii() and within.isdigit() and len(within) <= _MOST_DIGITS):
        raise bad_request("Invalid expiration value.")
    if unit not in _DAYS:
        raise bad_request(f"Time unit not recognised. Use: {', '.join(_DAYS)}.")
    last = time.time() + int(within) * _DAYS[unit] * 86_400
    expired = []
    for (protocol, ip, port), context in [*site.server.secured.items(), *site.secured.items()]:
        own, authorities = ends(context)
        if min([own, *authorities]) <= last:
            row = {"node": site.name, "interface": ip, "port": port, "protocol": protocol,
                   "certfile_expires_on": _text(own), "cacertfile_expires_on": [_text(each) for each in authorities]}  # fmt: skip
            expired.append(row)
    if not expired:
        return {"status": "ok"}
    return Reply(503, encode({"status": "failed", "reason": "Certificates expiring", "expired": expired}))


def ends(context: ssl.SSLContext) -> tuple[float, list[float]]:
    """The ends of validity of a server's certificate and of the authorities that it trusts, in seconds since 1970."""
    authorities = (str(each["notAfter"]) for each in context.get_ca_certs())
    return not_after(_shown(context)), [float(ssl.cert_time_to_seconds(end)) for end in authorities]


def _shown(context: ssl.SSLContext) -> bytes:
    """The certificate that the context shows to clients, as DER."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    client = anyone.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:  # the other side's turn
            pass
    shown = client.getpeercert(binary_form=True)
    assert shown is not None, "a server shows its certificate in its first flight"
    return shown


def not_after(certificate: bytes) -> float:
    """The end of validity of a DER certificate, in seconds since 1970."""
    (_, whole), *_ = _elements(certificate)
    (_, to_be_signed), *_ = _elements(whole)
    fields = [each for each in _elements(to_be_signed) if each[0] != _VERSION]
    _serial, _algorithm, _issuer, (_, validity), *_ = fields
    _, (kind, end) = _elements(validity)
    text = end.decode("ascii")
    if kind == _UTC_TIME:  # two digits of the year: those below 50 are of this century
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and the content of each element of a DER sequence."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length >= _LONG_LENGTH:
            size = length - _LONG_LENGTH
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        yield tag, data[at : at + length]
        at += length


def _text(end: float) -> str:
    return f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M:%S}"


ROUTES = (Route("GET", "health/checks/certificate-expiration/{within}/{unit}", check),)
