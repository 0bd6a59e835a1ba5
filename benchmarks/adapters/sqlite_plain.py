"""Hand-written queue on the standard library's sqlite3, WAL mode."""

import os
import sqlite3
import threading

from benchmarks.adapters.base import ACK, FSYNC, OS, BaseAdapter, GroupedPublishes, Polled, Waker


class SqliteQueue(Polled, BaseAdapter):
    ack_mode = ACK
    native_batch = native_fanout = True
    synchronous = "FULL"

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.file = os.path.join(path, "queue.db")
        self.tls = threading.local()
        self.conns = []
        self.wlock = threading.Lock()  # SQLite has one writer anyway
        c = self._conn()
        self.ins, self.sel, self.cursor, self.wakers = {}, {}, {}, {}
        c.execute("CREATE TABLE IF NOT EXISTS shared(id INTEGER PRIMARY KEY, refs INT, body BLOB)")
        for q in queues:
            t = f"q_{q}"
            c.execute(
                f"CREATE TABLE IF NOT EXISTS {t}(id INTEGER PRIMARY KEY AUTOINCREMENT, shared INT, body BLOB)"
            )
            self.ins[q] = f"INSERT INTO {t}(body) VALUES (?)"
            self.sel[q] = (
                f"SELECT q.id, coalesce(q.body, s.body) FROM {t} q LEFT JOIN shared s "
                f"ON s.id = q.shared WHERE q.id > ? ORDER BY q.id LIMIT ?"
            )
            self.cursor[q] = 0
            self.wakers[q] = Waker()
        self._start()

    def _start(self):
        pass

    def _conn(self):
        c = getattr(self.tls, "c", None)
        if c is None:
            c = sqlite3.connect(
                self.file, timeout=30, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            c.execute("PRAGMA journal_mode=WAL")
            c.execute(f"PRAGMA synchronous={self.synchronous}")
            self.tls.c = c
            self.conns.append(c)
        return c

    def publish_confirmed(self, body, queue="q"):
        c = self._conn()
        with self.wlock:
            c.execute(self.ins[queue], (body,))
        self.wakers[queue].bump()

    def publish_batch(self, chunk, queue):
        c = self._conn()
        with self.wlock:
            c.execute("BEGIN IMMEDIATE")
            c.executemany(self.ins[queue], [(b,) for b in chunk])
            c.execute("COMMIT")
        self.wakers[queue].bump()

    def publish_fanout(self, body, queues):
        c = self._conn()
        with self.wlock:
            c.execute("BEGIN IMMEDIATE")
            sid = c.execute("INSERT INTO shared(refs, body) VALUES (?,?)", (len(queues), body)).lastrowid
            for q in queues:
                c.execute(f"INSERT INTO q_{q}(shared) VALUES (?)", (sid,))
            c.execute("COMMIT")

    def _take(self, max_n, queue):
        rows = self._conn().execute(self.sel[queue], (self.cursor[queue], max_n)).fetchall()
        if rows:
            self.cursor[queue] = rows[-1][0]
        return rows

    def ack(self, tags, queue="q"):
        c = self._conn()
        with self.wlock:
            if len(tags) == 1:
                c.execute(f"DELETE FROM q_{queue} WHERE id=?", (tags[0],))
            else:
                c.execute("BEGIN IMMEDIATE")
                if tags[-1] - tags[0] + 1 == len(tags):
                    c.execute(f"DELETE FROM q_{queue} WHERE id BETWEEN ? AND ?", (tags[0], tags[-1]))
                else:
                    c.executemany(f"DELETE FROM q_{queue} WHERE id=?", [(t,) for t in tags])
                c.execute("COMMIT")

    def close(self):
        for c in self.conns:
            c.close()


class Full(SqliteQueue):
    name, durability, synchronous = "sqlite-wal-full", FSYNC, "FULL"
    notes = "COMMIT in WAL with synchronous=FULL: fdatasync of the WAL before it returns"


class Normal(SqliteQueue):
    name, durability, synchronous = "sqlite-wal-normal", OS, "NORMAL"
    notes = "COMMIT in WAL with synchronous=NORMAL: write only; fsync at checkpoints"


class FullGroup(GroupedPublishes, SqliteQueue):
    """SQLite with one writer thread that commits whatever is waiting, else as Full."""

    name, durability, synchronous = "sqlite-wal-full-group", FSYNC, "FULL"
    notes = "as sqlite-wal-full, a writer thread groups concurrent publishers into one COMMIT"

    def _commit(self, items):
        c = self._conn()
        with self.wlock:
            c.execute("BEGIN IMMEDIATE")
            for q, b in items:
                c.execute(self.ins[q], (b,))
            c.execute("COMMIT")
        for q in {q for q, _ in items}:
            self.wakers[q].bump()


ADAPTERS = {"sqlite-wal-full": Full, "sqlite-wal-normal": Normal, "sqlite-wal-full-group": FullGroup}
