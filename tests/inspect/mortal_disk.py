"""A disk whose user dies, as by SIGKILL, before its n-th operation that changes anything; what was written stays."""

from __future__ import annotations

import errno
import os
from typing import Any

from warrenmq.seams.real_disk import RealDisk


class Cut(BaseException):
    """The process is gone."""


class Mortal(RealDisk):
    """A disk whose user dies before its n-th operation that changes anything."""

    def __init__(self, operations: int) -> None:
        super().__init__("os")
        self.left = operations

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Cut

    def open(self, path: str, *, create: bool = False) -> Any:
        self.step()
        file = super().open(path, create=create)
        append = file.append

        def mortal_append(data: bytes) -> None:
            self.step()
            append(data)

        file.append = mortal_append  # type: ignore[method-assign]
        return file

    def unlink(self, path: str) -> None:
        self.step()
        super().unlink(path)

    def rename(self, src: str, dst: str) -> None:
        self.step()
        super().rename(src, dst)


class Full(RealDisk):
    """A disk that is full from its n-th append on."""

    def __init__(self, appends: int) -> None:
        super().__init__("os")
        self.left = appends

    def open(self, path: str, *, create: bool = False) -> Any:
        file = super().open(path, create=create)
        append = file.append

        def append_if_it_fits(data: bytes) -> None:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            append(data)

        file.append = append_if_it_fits  # type: ignore[method-assign]
        return file
