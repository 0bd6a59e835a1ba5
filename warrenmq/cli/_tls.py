"""The TLS context of `warrenmq serve`, of its arguments or of ssl_options in a rabbitmq.conf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.errors import CallerError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence


def tls_context(
    cert: str | None, key: str | None, ca: str | None, *, password: str | None, verify: bool, ask: bool,
    versions: Sequence[str],
) -> ssl.SSLContext | None:  # fmt: skip
    """Make the server's TLS context; None without a certificate.  CallerError for unusable files and incomplete options.

    `verify`: refuse clients without a certificate.  `ask`: check the certificate of a client that has one, if `ca` says whose to trust.
    """
    import ssl  # 20 ms that a server without TLS does not need

    if cert is None:
        if key or ca or verify:
            raise CallerError("TLS needs a certificate: --tls-cert FILE.")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key, password)
        if ca is not None and (ask or verify):
            context.load_verify_locations(ca)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as why:
        files = ", ".join(filter(None, (cert, key, ca)))
        msg = f"the files of TLS ({files}) cannot be used: {why.strerror or why}."
        raise CallerError(msg) from why
    if verify:
        if ca is None:
            raise CallerError("--tls-verify needs to know who signs: --tls-ca FILE.")
        context.verify_mode = ssl.CERT_REQUIRED
    if versions:
        known = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}
        wanted = sorted(known[name] for name in versions)
        context.minimum_version, context.maximum_version = wanted[0], wanted[-1]
    return context
