"""Physical and interpreter limits, measured with nothing else in the way.

    python -m benchmarks.limits --dir SCRATCH --out results/limits.json [--lock FILE]

disk: sequential writes with one fdatasync per batch, on
  append      a growing file (each fdatasync also commits the new file size)
  fallocated  a file given its blocks by fallocate (unwritten extents)
  recycled    a file that was written before and is overwritten
memory: queue.Queue, collections.deque, SimpleQueue, one thread and across two
threads; pykka tell/ask when pykka is installed; per-message framing costs.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import queue
import statistics
import struct
import threading
import time
import zlib
from collections import deque

clock = time.perf_counter


def disk(path: str, mode: str, batch: int, secs: float) -> dict:
    size = 512 << 20
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
    fd = os.open(path, flags, 0o644)
    if mode == "fallocated":
        os.posix_fallocate(fd, 0, size)
        os.fsync(fd)
    elif mode == "recycled":
        z = bytes(4 << 20)
        for off in range(0, size, len(z)):
            os.pwrite(fd, z, off)
        os.fsync(fd)
    data = os.urandom(batch)
    ts, off = [], 0
    t_end = clock() + secs
    t0 = clock()
    while True:
        a = clock()
        os.pwrite(fd, data, off)
        os.fdatasync(fd)
        b = clock()
        ts.append(b - a)
        off += batch
        if off + batch > size:
            if mode != "recycled":
                break
            off = 0
        if b > t_end:
            break
    dt = clock() - t0
    os.close(fd)
    os.unlink(path)
    v = sorted(ts)
    return {
        "mode": mode,
        "batch": batch,
        "syncs_s": len(ts) / dt,
        "mb_s": len(ts) * batch / dt / 1e6,
        "p50_ms": v[len(v) // 2] * 1e3,
        "p99_ms": v[int(len(v) * 0.99)] * 1e3,
    }


def nosync(path: str, batch: int, secs: float) -> dict:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    data = os.urandom(batch)
    n, t0 = 0, clock()
    t_end = t0 + secs
    while clock() < t_end and n * batch < (2 << 30):
        os.write(fd, data)
        n += 1
    dt = clock() - t0
    os.close(fd)
    os.unlink(path)
    return {
        "mode": "write only",
        "batch": batch,
        "syncs_s": n / dt,
        "mb_s": n * batch / dt / 1e6,
        "p50_ms": dt / n * 1e3,
        "p99_ms": None,
    }


def rate(fn, secs: float = 0.5) -> float:
    """fn(n) does n operations."""
    n = 1000
    while True:
        t = clock()
        fn(n)
        dt = clock() - t
        if dt > secs:
            return n / dt
        n = int(n * max(2, min(10, secs / max(dt, 1e-6) * 1.2)))


def memory() -> dict:
    out = {}
    body = b"x" * 1024

    def q1(n):
        q = queue.Queue()
        for _ in range(n):
            q.put(body)
            q.get()

    def sq1(n):
        q = queue.SimpleQueue()
        for _ in range(n):
            q.put(body)
            q.get()

    def d1(n):
        d = deque()
        for _ in range(n):
            d.append(body)
            d.popleft()

    def across(cls):
        def f(n):
            q = cls()

            def prod():
                for _ in range(n):
                    q.put(body)

            t = threading.Thread(target=prod)
            t.start()
            for _ in range(n):
                q.get()
            t.join()

        return f

    def pingpong(n):
        a, b = queue.SimpleQueue(), queue.SimpleQueue()

        def echo():
            for _ in range(n):
                b.put(a.get())

        t = threading.Thread(target=echo)
        t.start()
        for _ in range(n):
            a.put(1)
            b.get()
        t.join()

    pack = struct.Struct(">Q16sQ").pack
    mid = os.urandom(16)

    def frame_join(n):
        for _ in range(n // 1000):
            parts = []
            for i in range(1000):
                parts.append(pack(1024 + 16, mid, i))
                parts.append(body)
            b"".join(parts)

    def crc(n):
        c = zlib.crc32
        for _ in range(n):
            c(body)

    def dict_index(n):
        d = {}
        for i in range(n):
            d[i] = (1, i, 1024)
        for i in range(n):
            del d[i]

    for name, fn in (
        ("queue.Queue put+get, 1 thread", q1),
        ("SimpleQueue put+get, 1 thread", sq1),
        ("deque append+popleft, 1 thread", d1),
        ("queue.Queue across 2 threads", across(queue.Queue)),
        ("SimpleQueue across 2 threads", across(queue.SimpleQueue)),
        ("SimpleQueue ping-pong (2 thread switches)", pingpong),
        ("frame a 1 KB message (pack + join)", frame_join),
        ("crc32 of 1 KB", crc),
        ("dict insert+delete of an index entry", dict_index),
    ):
        out[name] = rate(fn)
    try:
        import pykka

        class Sink(pykka.ThreadingActor):
            def __init__(self):
                super().__init__()
                self.n = 0

            def on_receive(self, message):
                self.n += 1
                return self.n

        ref = Sink.start()

        def tell(n):
            for _ in range(n):
                ref.tell(body)
            ref.ask(0)

        def ask(n):
            for _ in range(n):
                ref.ask(body)

        def tell_batch(n):
            chunk = [body] * 100
            for _ in range(n // 100):
                ref.tell(chunk)
            ref.ask(0)

        proxy = ref.proxy()

        def proxy_attr(n):
            for _ in range(n):
                proxy.n.get()

        out["pykka tell (until processed)"] = rate(tell)
        out["pykka ask (round trip)"] = rate(ask)
        out["pykka tell, 100 messages per tell"] = rate(tell_batch)
        out["pykka proxy attribute read"] = rate(proxy_attr)
        ref.stop()
    except ImportError:
        pass
    return out


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--dir", required=True)
    p.add_argument("--out")
    p.add_argument("--lock")
    p.add_argument("--secs", type=float, default=1.0)
    p.add_argument("--repeats", type=int, default=3)
    o = p.parse_args()
    os.makedirs(o.dir, exist_ok=True)
    path = os.path.join(o.dir, "limit.dat")

    def locked(fn, *a):
        if not o.lock:
            return fn(*a)
        with open(o.lock, "a") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            os.sync()
            return fn(*a)

    res = {"disk": [], "memory": {}}
    for mode in ("append", "fallocated", "recycled", "write only"):
        for batch in (100, 1024, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20):
            rs = [
                locked(nosync, path, batch, o.secs)
                if mode == "write only"
                else locked(disk, path, mode, batch, o.secs)
                for _ in range(o.repeats)
            ]
            row = {"mode": mode, "batch": batch}
            for k in ("syncs_s", "mb_s", "p50_ms", "p99_ms"):
                v = [r[k] for r in rs if r[k] is not None]
                row[k] = statistics.median(v) if v else None
            row["mb_s_range"] = [min(r["mb_s"] for r in rs), max(r["mb_s"] for r in rs)]
            res["disk"].append(row)
            print({k: (round(v, 3) if isinstance(v, float) else v) for k, v in row.items()}, flush=True)
    ms = [locked(memory) for _ in range(o.repeats)]
    for k in ms[0]:
        res["memory"][k] = statistics.median(m[k] for m in ms)
        print(f"{k:45} {res['memory'][k]:12,.0f} /s  ({1e6 / res['memory'][k]:.2f} us)", flush=True)
    if o.out:
        json.dump(res, open(o.out, "w"), indent=1)


if __name__ == "__main__":
    main()
