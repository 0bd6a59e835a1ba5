"""`warrenmq hash-password`: the password_hash of a password, for a users file (as rabbitmqctl hash_password)."""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import Any

from warrenmq.cli._parsers import add_verb
from warrenmq.errors import CallerError


def add_parser(subparsers: Any) -> None:
    parser = add_verb(
        subparsers, "hash-password",
        summary="print the password_hash of a password, for serve --users",
        does="Print the password_hash (rabbit_password_hashing_sha256) of a password that is asked for, or that comes "
        "as a line of stdin.",
        example="warrenmq hash-password < password.txt",
        ends="0 done, 2 the password is empty.",
        aliases=("hash_password",),  # rabbitmqctl's spelling
    )  # fmt: skip
    parser.add_argument(
        "password",
        metavar="PASSWORD",
        nargs="?",
        help="better left out: other users of the machine see arguments",
    )


def run(args: argparse.Namespace) -> int:
    from warrenmq.amqp.access.passwords import hash_password

    password = args.password
    if password is None and sys.stdin is None:
        raise CallerError("stdin is closed; the password comes from there, or as an argument.")
    try:
        if password is None:
            password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
        if not password:
            raise CallerError("the password is empty; an empty password is never accepted at login.")
        hashed = hash_password(password)
    except UnicodeError:
        raise CallerError("the password is no text in UTF-8.") from None
    print(hashed)
    return 0
