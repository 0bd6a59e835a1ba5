"""Unique names: 128 random bits in 22 letters, as in the names that the server gives (rabbit_guid:gen_secure)."""

from __future__ import annotations

from base64 import urlsafe_b64encode

from warrenmq.runtime import Runtime

OF_QUEUE, OF_CONSUMER = "amq.gen-", "amq.ctag-"
"""Prefixes of names that the server gives."""


def token(runtime: Runtime) -> str:
    """A random token of 22 letters."""
    return urlsafe_b64encode(runtime.token_bytes(16)).decode().rstrip("=")
