"""Hashed passwords, as RabbitMQ stores and exports them (rabbit_password).

    password_hash = base64(salt + digest(salt + password))      a salt of four bytes

`rabbitmqctl hash_password` and `warrenmq hash-password` make the same.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from binascii import Error as NotBase64

SALT = 4
ALGORITHMS = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}
DEFAULT_ALGORITHM = "rabbit_password_hashing_sha256"


class PasswordHash:
    """A salted hash of one password."""

    __slots__ = ("_digest", "_name", "_salt")

    def __init__(self, password_hash: str, algorithm: str = DEFAULT_ALGORITHM) -> None:
        """Decode a password_hash; "" matches no password.  Raises ValueError, worded as the end of a
        sentence, for a malformed one.
        """
        if algorithm not in ALGORITHMS:
            raise ValueError(f"has hashing_algorithm {algorithm!r}; known are {', '.join(ALGORITHMS)}")
        self._name = ALGORITHMS[algorithm]
        try:
            data = b64decode(password_hash, validate=True)
        except (NotBase64, ValueError) as why:
            raise ValueError("has a password_hash that is not Base64") from why
        self._salt, self._digest = data[:SALT], data[SALT:]
        if data and len(self._digest) != hashlib.new(self._name, usedforsecurity=False).digest_size:
            msg = f"has a password_hash that is not one of {algorithm}: it is {len(data)} bytes long"
            raise ValueError(msg)

    def matches(self, password: bytes) -> bool:
        """True if this is the hash of the password; an empty password never is (RabbitMQ refuses blank ones)."""
        digest = hashlib.new(self._name, self._salt + password, usedforsecurity=False).digest()
        return bool(password) and hmac.compare_digest(digest, self._digest)


def hash_password(password: str, algorithm: str = DEFAULT_ALGORITHM) -> str:
    """A password_hash with a new salt."""
    salt = os.urandom(SALT)
    digest = hashlib.new(ALGORITHMS[algorithm], salt + password.encode(), usedforsecurity=False).digest()
    return b64encode(salt + digest).decode()
