"""Markdown tables from the JSON of benchmarks.run.

    python -m benchmarks.report results/main.json [--baseline sqlite-wal-full]
        [--crash results/crash.json] [--tag T] [--only PEERS]

A cell is the median over the cleanest runs: those during which other
processes used less than --noise CPUs if there are at least two, else the
three least disturbed.  `x1.23` is the ratio to the baseline.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict

CLASSES = [
    ("fsync", "confirmed = fsync'ed (survives power loss)"),
    ("os", "confirmed = in the OS page cache (survives kill -9, not power loss)"),
    ("none", "confirmed = nothing that survives kill -9"),
]
SIZED = {
    "w1": "W1 one producer, each message confirmed before the next",
    "w2": "W2 one producer, pipelined (window 4096), until all are confirmed",
    "w3s": "W3 stream: publish+consume+ack, pipelined (window 256, <= 2048 in flight, groups of 128)",
    "w3c": "W3 strict: confirm each publish, ack each message, <= 64 in flight",
    "w7": "W7 four producer threads, each waiting for its confirm",
}
SMALL, LARGE = 1024, 16384
BACKLOG_HEAD = [
    "peer", "enqueued", "fill msg/s", "drained", "drain msg/s", "peak RSS MiB", "RSS growth by backlog MiB",
    "disk / payload, full", "disk / payload, drained", "disk / payload, closed", "written / payload, fill / all",
]  # fmt: skip
FANOUT_HEAD = ["peer", "msg/s (x10 deliveries)", "copies on disk", "bytes on disk / msg", "written / msg"]
REOPEN_HEAD = [
    "peer", "pending", "clean: s to first msg", "recovered", "close s",
    "SIGKILL: s to first msg", "recovered", "of which boot s",
]  # fmt: skip
CRASH_HEAD = [
    "peer", "confirmed lost, one by one", "confirmed lost, pipelined", "delivered, unacked, lost",
    "acked, delivered again",
]  # fmt: skip


def num(x):
    if x is None or (isinstance(x, float) and math.isnan(x)):
        return "-"
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def print_table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


class Data:
    """The runs, by peer, workload and size."""

    def __init__(self, runs, peers, options):
        self.peers, self.base, self.noise = peers, options.baseline, options.noise
        only = options.only.split(",") if options.only else list(peers)
        self.names = [x for x in peers if x in only]
        self.by = defaultdict(list)
        for r in runs:
            if r.get("tag", "") == options.tag:
                self.by[r["peer"], r["workload"], r["size"]].append(r)

    def runs(self, peer, w, size):
        rs = [r for r in self.by.get((peer, w, size), []) if "error" not in r]
        rs.sort(key=lambda r: r.get("other_cpu", 0))
        clean = [r for r in rs if r.get("other_cpu", 0) < self.noise]
        return clean if len(clean) >= 2 else rs[:3]

    def error(self, peer, w, size):
        rs = self.by.get((peer, w, size), [])
        return rs[-1]["error"] if rs and all("error" in r for r in rs) else None

    def values(self, peer, w, size, key):
        return [r[key] for r in self.runs(peer, w, size) if r.get(key) is not None]

    def med(self, peer, w, size, key):
        v = self.values(peer, w, size, key)
        return statistics.median(v) if v else None

    def rate(self, peer, w, size, key="rate"):
        """The median with its spread and its ratio to the baseline, as a cell."""
        v = self.values(peer, w, size, key)
        if not v:
            e = self.error(peer, w, size)
            return f"fails: {e.split(':')[0]}" if e else "-"
        m, b = statistics.median(v), self.med(self.base, w, size, key)
        spread = f" ({num(min(v))}..{num(max(v))}, n={len(v)})" if len(v) > 1 else ""
        return num(m) + spread + (f" x{m / b:.{2 if m / b < 100 else 0}f}" if b else "")

    def groups(self, w, sizes, key, best=max):
        """The peers that ran `w`, in groups of equal durability, the best first."""
        middle = SMALL if SMALL in sizes else sizes[0]
        have = [x for x in self.names if any((x, w, s) in self.by for s in sizes)]

        def rank(x):
            value = self.med(x, w, middle, key)
            return math.inf if value is None else value if best is min else -value

        for cls, title in CLASSES:
            group = sorted((x for x in have if self.peers[x]["durability"] == cls), key=rank)
            if group:
                print(f"**{title}**\n")
                yield group


def sized(d, w):
    sizes = sorted({size for _, workload, size in d.by if workload == w})
    if not sizes:
        return
    print(f"\n## {SIZED[w]}\n")
    unit = "MB/s" if w == "w2" else "p50/p99 ms"
    for group in d.groups(w, sizes, "rate"):
        head = ["peer", *(f"{s} B msg/s" for s in sizes), *(f"{s} B {unit}" for s in sizes)]
        rows = [
            [x, *(d.rate(x, w, s) for s in sizes), *(second_cell(d, x, w, s) for s in sizes)] for x in group
        ]
        print_table(head, rows)


def second_cell(d, x, w, size):
    return num(d.med(x, w, size, "mb_s")) if w == "w2" else latency_cell(d, x, w, size)


def latency_cell(d, x, w, size):
    return f"{num(d.med(x, w, size, 'p50_ms'))} / {num(d.med(x, w, size, 'p99_ms'))}"


def backlog(d):
    print("\n## W4 backlog of 1 KB messages, then drain and ack all\n")
    for group in d.groups("w4", [SMALL], "drain_rate"):
        print_table(BACKLOG_HEAD, [backlog_row(d, x) for x in group])


def backlog_row(d, x):
    def g(key):
        return d.med(x, "w4", SMALL, key)

    if g("n") is None:
        return [x, "fails: " + str(d.error(x, "w4", SMALL))[:60]] + ["-"] * 9
    server = g("server_rss_peak_kb")
    return [
        x,
        num(g("n")),
        d.rate(x, "w4", SMALL, "fill_rate"),
        num(g("drained")),
        d.rate(x, "w4", SMALL, "drain_rate"),
        f"{(g('rss_peak_kb') or 0) / 1024:.0f}" + (f" + server {server / 1024:.0f}" if server else ""),
        f"{((g('rss_full_kb') or 0) - (g('rss_before_kb') or 0)) / 1024:.0f}",
        num(g("space_amp")),
        num(g("left_after_drain")),
        num(g("left_after_close")),
        f"{num(g('write_amp_fill'))} / {num(g('write_amp_total'))}",
    ]


def fanout(d):
    print("\n## W5 one 16 KB message to 10 queues\n")
    for group in d.groups("w5", [LARGE], "rate"):
        keys = ("copies_on_disk", "disk_per_msg", "written_per_msg")
        rows = [
            [x, d.rate(x, "w5", LARGE), *(num(d.med(x, "w5", LARGE, key)) for key in keys)] for x in group
        ]
        print_table(FANOUT_HEAD, rows)


def reopen(d):
    print("\n## W6 reopen with a backlog of 1 KB messages\n")
    for group in d.groups("w6-kill", [SMALL], "first_s", min):
        rows = [
            [
                x,
                num(d.med(x, "w6-clean", SMALL, "n")),
                *reopen_cells(d, x, "w6-clean", "close_s"),
                *reopen_cells(d, x, "w6-kill", "boot_s"),
            ]
            for x in group
        ]
        print_table(REOPEN_HEAD, rows)


def reopen_cells(d, x, w, third):
    if d.error(x, w, SMALL):
        return ["fails", "-", "-"]
    got, n = d.med(x, w, SMALL, "recovered"), d.med(x, w, SMALL, "n")
    capped = not all(r.get("complete", True) for r in d.runs(x, w, SMALL))
    recovered = (
        "all" if got == n else f"{num(got)} of {num(n)}" + (" (drain capped by time)" if capped else "")
    )
    return [num(d.med(x, w, SMALL, "first_s")), recovered, num(d.med(x, w, SMALL, third))]


def crashes(path):
    print("\n## SIGKILL check\n")
    by = defaultdict(lambda: defaultdict(list))
    for r in json.load(open(path)):
        by[r["peer"]][r["phase"]].append(r)
    rows = [
        [x, published_cell(phases["A"]), published_cell(phases["B"]), *consumed_cells(phases["C"])]
        for x, phases in by.items()
    ]
    print_table(CRASH_HEAD, rows)


def split(runs):
    return [r for r in runs if "error" not in r], [r["error"] for r in runs if "error" in r]


def published_cell(runs):
    good, errors = split(runs)
    cell = f"{sum(r['lost'] for r in good):,} of {sum(r['confirmed'] for r in good):,}" if good else ""
    torn, dup = sum(r["torn"] for r in good), sum(r["dup"] for r in good)
    if torn or dup:
        cell += f" (torn {torn}, dup {dup})"
    if errors:
        cell += f" {len(errors)} reopen(s) failed: {errors[0].strip().splitlines()[-1][:60]}"
    return cell


def consumed_cells(runs):
    good, errors = split(runs)
    if not good:
        return [errors[0][:60] if errors else "-", "-"]
    return [
        f"{sum(r['lost'] for r in good)} of {sum(r['held'] for r in good)}",
        f"{sum(r['redelivered_acks'] for r in good)} of {sum(r['acked'] for r in good)}",
    ]


def meanings(d):
    print("\n## What 'confirmed' means\n")
    rows = [[x, v["durability"], v["ack"], v["notes"]] for x, v in sorted(d.peers.items()) if x in d.names]
    print_table(["peer", "class", "acks", "meaning"], rows)


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("json", nargs="+")
    p.add_argument("--baseline", default="sqlite-wal-full")
    p.add_argument("--crash")
    p.add_argument("--noise", type=float, default=0.5)
    p.add_argument("--tag", default="")
    p.add_argument("--only", default="")
    p.add_argument("--workloads", default="w1,w2,w3s,w3c,w4,w5,w6,w7")
    o = p.parse_args()
    runs, peers = [], {}
    for f in o.json:
        j = json.load(open(f))
        runs += j["runs"]
        peers.update(j["peers"])
    d = Data(runs, peers, o)
    ran = {workload.partition("-")[0] for _, workload, _ in d.by}
    for w in o.workloads.split(","):
        if w in SIZED:
            sized(d, w)
        elif w in ran:
            {"w4": backlog, "w5": fanout, "w6": reopen}[w](d)
    if o.crash:
        crashes(o.crash)
    meanings(d)


if __name__ == "__main__":
    main()
