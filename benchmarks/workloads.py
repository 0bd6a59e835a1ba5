"""W1..W7.  Each takes an opened (or openable) adapter and returns a dict of
plain numbers.  Times are time-boxed, so a slow peer simply does fewer
messages; the rate is what is compared.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from itertools import cycle

clock = time.perf_counter
WINDOW = 4096
PRODUCERS = 4
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def pool(size: int, n: int = 512) -> list[bytes]:
    """Make n random printable bodies of `size` bytes (seq field left zero)."""
    rnd = random.Random(7)
    out = []
    for _ in range(n):
        raw = rnd.randbytes(size)
        out.append(raw.translate(bytes(ALPHABET[i % 64] for i in range(256))))
    return out


def numbered(bodies: list[bytes]):
    """Endless bodies with their sequence number in the first 16 bytes."""
    for i, b in enumerate(cycle(bodies)):
        yield b"%016x" % i + b[16:]


def pct(sorted_values: list[float], p: float) -> float:
    if not sorted_values:
        return float("nan")
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * p))]


def ms(x: float) -> float:
    return x * 1e3


def lat(values: list[float]) -> dict:
    v = sorted(values)
    return {
        "p50_ms": ms(pct(v, 0.50)),
        "p99_ms": ms(pct(v, 0.99)),
        "max_ms": ms(v[-1]) if v else float("nan"),
    }


def w1_confirmed(a, size: int, secs: float) -> dict:
    """One producer, each message confirmed before the next."""
    bodies = pool(size)
    pub = a.publish_confirmed
    t_end = clock() + min(0.3, secs / 5)
    for b in cycle(bodies):
        pub(b)
        if clock() > t_end:
            break
    gc.collect()
    lats = []
    t0 = clock()
    t_end = t0 + secs
    prev = t0
    for b in cycle(bodies):
        pub(b)
        now = clock()
        lats.append(now - prev)
        prev = now
        if now > t_end:
            break
    dt = prev - t0
    return {
        "n": len(lats),
        "secs": dt,
        "rate": len(lats) / dt,
        "mb_s": len(lats) * size / dt / 1e6,
        **lat(lats),
    }


def timed_bodies(bodies: list[bytes], secs: float, cap: int = 1 << 60):
    t_end = clock() + secs
    for n, b in enumerate(cycle(bodies), 1):
        yield b
        if n % 32 == 0 and (clock() > t_end or n >= cap):
            return


def w2_pipelined(a, size: int, secs: float) -> dict:
    """One producer, up to WINDOW unconfirmed; time until all confirmed."""
    bodies = pool(size)
    a.publish_pipelined(timed_bodies(bodies, min(0.3, secs / 5)), window=WINDOW)
    gc.collect()
    cap = int(6e9 // size)  # at most 6 GB
    t0 = clock()
    n = a.publish_pipelined(timed_bodies(bodies, secs, cap=cap), window=WINDOW)
    dt = clock() - t0
    return {"n": n, "secs": dt, "rate": n / dt, "mb_s": n * size / dt / 1e6}


class _Flow:
    """A producer's thread and a consumer, in a closed loop with a bounded backlog.

    sent      the time at which each message was made
    acked     how many messages the consumer has acked
    delays    seconds from a message's making to its arrival
    stop      ends both
    """

    def __init__(self, a, size: int, secs: float, window: int, inflight: int, group: int) -> None:
        self.a, self.window, self.inflight, self.group = a, window, inflight, group
        self.tails = [b[16:] for b in pool(size)]
        self.sent: list[float] = []
        self.acked = 0
        self.delays: list[float] = []
        self.order_errors = 0
        self.error: BaseException | None = None
        self.stop = threading.Event()
        warm = min(0.5, secs / 4)
        start = clock()
        self.warm_until, self.end = start + warm, start + warm + secs
        self.counted = self.n_warm = 0
        """Messages acked in the measured time, and all before it."""
        self.first: float | None = None
        self.last = 0.0
        """The times of the first and the last ack in the measured time."""

    def run(self) -> dict:
        thread = threading.Thread(target=self._produce)
        thread.start()
        try:
            self._consume(thread)
        finally:
            self.stop.set()
            thread.join(60)
        if self.error is not None:
            raise self.error
        measured = self.first is not None and self.last != self.first
        dt = self.last - self.first if measured else float("nan")
        return {
            "n": self.counted,
            "secs": dt,
            "rate": self.counted / dt if dt > 0 else 0.0,
            "order_errors": self.order_errors,
            "lost": len(self.sent) - self.acked,
            **lat(self.delays[self.n_warm :]),
        }

    def _bodies(self):
        """Numbered bodies until the end; waits while too many are on their way."""
        tails, inflight, end, stop = self.tails, self.inflight, self.end, self.stop
        append = self.sent.append
        i = 0
        while clock() <= end and not stop.is_set():
            while i - self.acked >= inflight:
                time.sleep(0.0002)
                if stop.is_set() or clock() > end:
                    return
            append(clock())
            yield b"%016x" % i + tails[i % len(tails)]
            i += 1

    def _produce(self) -> None:
        try:
            if self.window <= 1:
                for body in self._bodies():
                    self.a.publish_confirmed(body)
            else:
                self.a.publish_pipelined(self._bodies(), window=self.window)
        except BaseException as error:
            self.error = error
            self.stop.set()

    def _consume(self, producer: threading.Thread) -> None:
        expect = 0
        while True:
            deliveries = self.a.consume(self.group, 0.5)
            now = clock()
            if not deliveries:
                if not producer.is_alive() and (self.acked >= len(self.sent) or self.stop.is_set()):
                    return
                if now > self.end + 20:
                    return
                continue
            for _tag, body in deliveries:
                seq = int(body[:16], 16)
                self.order_errors += seq != expect
                expect = seq + 1
                self.delays.append(now - self.sent[seq])
            self.a.ack([tag for tag, _ in deliveries])
            self._count(len(deliveries))

    def _count(self, acked: int) -> None:
        now = clock()
        self.acked += acked
        if self.warm_until < now <= self.end:
            if self.first is None:
                self.first, self.n_warm = now, self.acked
            else:
                self.counted += acked
            self.last = now


def w3_stream(a, size: int, secs: float) -> dict:
    """publish+consume+ack, pipelined: window 256, at most 2048 in flight,
    consumer takes and acks up to 128 at a time.
    """
    return _Flow(a, size, secs, window=256, inflight=2048, group=128).run()


def w3_strict(a, size: int, secs: float) -> dict:
    """publish+consume+ack one by one: confirm per publish, ack per message,
    at most 64 in flight.
    """
    return _Flow(a, size, secs, window=1, inflight=64, group=1).run()


def proc_io(pids: list[int]) -> dict:
    tot = {"write_bytes": 0, "wchar": 0}
    for p in pids:
        try:
            for line in open(f"/proc/{p}/io"):
                k, v = line.split(":")
                if k in tot:
                    tot[k] += int(v)
        except OSError:
            pass
    return tot


def status_kb(pid: int, field: str) -> int:
    """VmRSS, the memory that a process holds, or VmHWM, the most that it held."""
    for line in open(f"/proc/{pid}/status"):
        if line.startswith(field):
            return int(line.split()[1])
    return 0


class PeakRss(threading.Thread):
    """Peak RSS of other processes (a server), sampled."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.pids, self.peak, self.stop = pids, 0, threading.Event()

    def run(self):
        while not self.stop.wait(0.1):
            try:
                self.peak = max(self.peak, sum(status_kb(p, "VmRSS") for p in self.pids))
            except OSError:
                pass


def fill(a, n: int, size: int, cap: float) -> tuple[int, float]:
    t0 = clock()

    def gen():
        for i, b in zip(range(n), numbered(pool(size)), strict=False):
            if i % 64 == 0 and clock() - t0 > cap:
                return
            yield b

    k = a.publish_pipelined(gen(), window=WINDOW)
    return k, clock() - t0


def drain(a, expect: int, cap: float) -> dict:
    t0 = clock()
    n = bad = 0
    nxt = 0
    first = None
    while n < expect and clock() - t0 < cap:
        ds = a.consume(256, 2.0)
        if not ds:
            break
        if first is None:
            first = clock() - t0
        for _t, body in ds:
            s = int(body[:16], 16)
            if s != nxt:
                bad += 1
            nxt = s + 1
        n += len(ds)
        a.ack([t for t, _ in ds])
    dt = clock() - t0
    return {"n": n, "secs": dt, "rate": n / dt if dt else 0, "first_s": first, "out_of_order": bad}


def w4_backlog(a, path: str, size: int, n: int, cap: float) -> dict:
    """Enqueue n, then drain and ack all; space and writes around it."""
    me = os.getpid()
    spids = a.server_pids()
    pids = spids or [me]
    peak = PeakRss(spids) if spids else None
    rss0 = status_kb(me, "VmRSS")
    srss0 = sum(status_kb(p, "VmRSS") for p in spids)
    disk0 = a.disk_bytes(path)
    if peak:
        peak.start()
    io0 = proc_io(pids)
    k, t_in = fill(a, n, size, cap)
    os.sync()
    disk1 = a.disk_bytes(path)
    io1 = proc_io(pids)
    rss1 = status_kb(me, "VmRSS")
    d = drain(a, k, cap)
    if d["n"] == k:
        time.sleep(1.0)  # let it reclaim
    os.sync()
    disk2 = a.disk_bytes(path)
    io2 = proc_io(pids)
    if peak:
        peak.stop.set()
        peak.join()
    payload = k * size
    return {
        "n": k,
        "fill_secs": t_in,
        "fill_rate": k / t_in,
        "drained": d["n"],
        "drain_secs": d["secs"],
        "drain_rate": d["rate"],
        "out_of_order": d["out_of_order"],
        "rss_before_kb": rss0,
        "rss_full_kb": rss1,
        "rss_peak_kb": status_kb(me, "VmHWM"),
        "server_rss_before_kb": srss0,
        "server_rss_peak_kb": peak.peak if peak else 0,
        "disk_before": disk0,
        "disk_full": disk1,
        "disk_drained": disk2,
        "space_amp": (disk1 - disk0) / payload,
        "left_after_drain": (disk2 - disk0) / payload,
        "write_amp_fill": (io1["write_bytes"] - io0["write_bytes"]) / payload,
        "write_amp_total": (io2["write_bytes"] - io0["write_bytes"]) / payload,
    }


def w5_fanout(a, path: str, size: int, secs: float, queues: list[str]) -> dict:
    """One message to all queues; bytes on disk per message."""
    bodies = pool(size, 64)
    spids = a.server_pids()
    pids = spids or [os.getpid()]
    for b in bodies[:4]:
        a.publish_fanout(b, queues)
    a.settle()
    os.sync()
    d0, io0 = a.disk_bytes(path), proc_io(pids)
    n, t0 = 0, clock()
    cap = int(2e9 // size)
    for b in cycle(bodies):
        a.publish_fanout(b, queues)
        n += 1
        if (n % 4 == 0 and clock() - t0 > secs) or n >= cap:
            break
    a.settle()
    dt = clock() - t0
    os.sync()
    d1, io1 = a.disk_bytes(path), proc_io(pids)
    return {
        "n": n,
        "secs": dt,
        "rate": n / dt,
        "deliveries_s": n * len(queues) / dt,
        "disk_per_msg": (d1 - d0) / n,
        "copies_on_disk": (d1 - d0) / n / size,
        "written_per_msg": (io1["write_bytes"] - io0["write_bytes"]) / n,
    }


def w7_producers(a, size: int, secs: float) -> dict:
    """Four producers, each waiting for its confirm."""
    bodies = pool(size)
    lats: list[list[float]] = [[] for _ in range(PRODUCERS)]
    go = threading.Barrier(PRODUCERS + 1)
    t_end = [0.0]
    err: list[BaseException] = []

    def run(k: int):
        try:
            pub = a.publish_confirmed
            for i in range(5):
                pub(bodies[i])
            go.wait()
            mine = lats[k].append
            prev = clock()
            for b in cycle(bodies):
                pub(b)
                now = clock()
                mine(now - prev)
                prev = now
                if now > t_end[0]:
                    break
        except BaseException as e:
            err.append(e)
            go.abort()

    ths = [threading.Thread(target=run, args=(k,)) for k in range(PRODUCERS)]
    for t in ths:
        t.start()
    t_end[0] = clock() + secs + 0.05
    try:
        t_end[0] = clock() + 1e9
        while go.n_waiting < PRODUCERS and not err:
            time.sleep(0.001)
        t0 = clock()
        t_end[0] = t0 + secs
        go.wait()
    except threading.BrokenBarrierError:
        pass
    for t in ths:
        t.join()
    if err:
        raise err[0]
    dt = clock() - t0
    allv = [x for each in lats for x in each]
    return {"n": len(allv), "secs": dt, "rate": len(allv) / dt, **lat(allv)}
