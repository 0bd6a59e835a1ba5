"""A disk whose power fails at a chosen operation, below verbs that read directories by themselves: repair and compact."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

from tests.inspect.mortal_disk import Mortal


class _Inode:
    """A file: the bytes that are safe."""

    def __init__(self, safe: bytes) -> None:
        self.safe = safe


class Unsafe(Mortal):
    """Keeps apart what was synced; `power_cut` leaves of the rest what it likes."""

    def __init__(self, operations: int, root: Path) -> None:
        super().__init__(operations)
        self._root = root
        self._safe = {
            str(path): _Inode(path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()
        }
        self._live = dict(self._safe)

    def open(self, path: str, *, create: bool = False) -> Any:
        file = super().open(path, create=create)
        inode = self._live.setdefault(path, _Inode(b""))

        def datasync() -> None:
            self.step()
            inode.safe = file.pread(file.size(), 0)

        file.datasync = datasync  # type: ignore[method-assign]
        return file

    def rename(self, src: str, dst: str) -> None:
        super().rename(src, dst)
        self._live[dst] = self._live.pop(src)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._live.pop(path, None)

    def replace(self, path: str, data: bytes) -> None:
        file = self.open(f"{path}.tmp", create=True)
        file.truncate(0)
        file.append(data)
        file.datasync()
        file.close()
        self.rename(f"{path}.tmp", path)
        self.sync_dir(str(Path(path).parent))

    def sync_dir(self, path: str) -> None:
        self.step()
        folder = f"{path}/"
        for each in {*self._safe, *self._live}:
            if each.startswith(folder) and "/" not in each.removeprefix(folder):
                if each in self._live:
                    self._safe[each] = self._live[each]
                else:
                    del self._safe[each]

    def sync_many(self, paths: Any) -> None:
        for path in paths:
            if Path(path).is_dir():
                self.sync_dir(path)
            else:
                self.step()
                self._live[path].safe = Path(path).read_bytes()

    def power_cut(self, draw: Random) -> None:
        """Leave of each name and of each file's bytes those that are safe or those that were seen last."""
        seen = {path: Path(path).read_bytes() for path in self._live if Path(path).exists()}
        left: dict[str, bytes] = {}
        for path in sorted({*self._safe, *self._live}):
            inode = draw.choice([self._safe.get(path), self._live.get(path)])
            if inode is not None:
                last = next((seen[name] for name, each in self._live.items() if each is inode), inode.safe)
                left[path] = draw.choice([inode.safe, last])
        for path in [*self._root.rglob("*")]:
            if path.is_file():
                path.unlink()
        for name, data in left.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(data)


def copied(source: Path, target: Path) -> Path:
    """A copy of a directory in place of what is there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
