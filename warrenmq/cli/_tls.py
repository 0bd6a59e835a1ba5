"""The TLS context of a listener of `warrenmq serve`, of its arguments or of a rabbitmq.conf."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from warrenmq.errors import CallerError


@dataclass(slots=True)
class TlsOptions:
    """The options of RabbitMQ's ssl_options and management.ssl; None = not set."""

    certfile: str | None = None
    keyfile: str | None = None
    cacertfile: str | None = None
    password: str | None = None
    verify: bool | None = None
    """Check the certificate of a client that has one, if `cacertfile` says whose to trust; None is True."""
    fail_if_no_peer_cert: bool = False
    """Refuse clients without a certificate."""
    versions: list[str] = field(default_factory=list)


def tls_context(options: TlsOptions) -> ssl.SSLContext | None:
    """Make a server's TLS context; None without a certificate.  CallerError for unusable files and incomplete options."""
    cert, key, ca = options.certfile, options.keyfile, options.cacertfile
    required = options.fail_if_no_peer_cert and options.verify is not False
    if cert is None:
        if key or ca or required:
            raise CallerError(
                "TLS needs a certificate: --tls-cert FILE, or a certfile in the configuration file."
            )
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key, options.password)
        if ca is not None and options.verify is not False:
            context.load_verify_locations(ca)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as why:
        files = ", ".join(filter(None, (cert, key, ca)))
        raise CallerError(f"the files of TLS ({files}) cannot be used: {why.strerror or why}.") from why
    if required:
        if ca is None:
            raise CallerError(
                "to refuse clients without a certificate needs to know who signs: --tls-ca FILE, or a cacertfile."
            )
        context.verify_mode = ssl.CERT_REQUIRED
    if options.versions:
        known = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}
        wanted = sorted(known[name] for name in options.versions)
        context.minimum_version, context.maximum_version = wanted[0], wanted[-1]
    return context
