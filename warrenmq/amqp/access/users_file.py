"""users.json of a data directory: the users, virtual hosts and permissions that were changed while the server ran.

It has the form of exported definitions, and mode 0600, as it holds password hashes.  Entries of a definitions file
(`serve --users`) are not in it: that file is read at each start, and wins.  When neither has a user there is guest.
"""

from __future__ import annotations

import json
import os
from typing import Any

from warrenmq.amqp.access.users import Users, read_definitions
from warrenmq.directory.layout import USERS
from warrenmq.errors import SettingsError


def load_users(data: str, file: str | None = None, default: Users | None = None) -> Users:
    """The users of the data directory `data`, which every later change is written to, and of a definitions file.

    `default` are those of a directory that has none; guest unless given.  Raises SettingsError, in one
    sentence, for a file that cannot be used.
    """
    users = Users()
    path = os.path.join(data, USERS)
    if os.path.exists(path):
        try:
            users.adopt(read_definitions(path))
        except ValueError as why:
            raise SettingsError(f"the users file {path} cannot be used: {why}.") from why
    if file is not None:
        Users.of_file(file, definitions := read_definitions(file))
        users.add(definitions)
    elif not users.accounts():
        users.adopt((default or Users.default()).definitions())
    users.changed = lambda: write(path, users.own_definitions())
    return users


def write(path: str, definitions: dict[str, Any]) -> None:
    """Replace the file, durably; OSError when that cannot be done."""
    folder = os.path.dirname(path)
    new = f"{path}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as out:
        json.dump(definitions, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    os.replace(new, path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
