"""`warrenmq hash_password`: the password_hash of a password, for a users file (as rabbitmqctl hash_password)."""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import Any

from warrenmq.errors import CallerError


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "hash_password",
        help="the password_hash of a password, for serve --users",
        description="Print the password_hash (rabbit_password_hashing_sha256) of a password that is asked for, or that comes "
        "as a line of the standard input.",
    )
    parser.add_argument("password", nargs="?", help="better left out: other users of the machine see arguments")


def run(args: argparse.Namespace) -> int:
    from warrenmq.amqp.passwords import hash_password

    password = args.password
    if password is None:
        password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CallerError("the password is empty; nobody can log in with an empty password.")
    print(hash_password(password))
    return 0
