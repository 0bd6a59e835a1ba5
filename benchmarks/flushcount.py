"""Flushes per confirmed message, counted with fsyncshim.so: the evidence for
the durability class of a peer.

    python -m benchmarks.flushcount --shim PATH/fsyncshim.so --dir SCRATCH --out results/flush.json

Embedded peers run with the shim preloaded; for RabbitMQ the node is restarted
with the shim (BENCH_NODE_PRELOAD) and asked for its counts around the load by
reading /proc counters of flushes: the shim dumps them when the node stops.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

from benchmarks import ROOT, rabbit_node
from benchmarks.run import pick_peers

CODE = """
import os, sys
from benchmarks.adapters import load
name, path, mode, n = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
size = int(sys.argv[5])
a = load(name); a.open(path)
b = b"%016x" % 1 + b"x" * (size - 16)
if mode == "one":
    for i in range(n): a.publish_confirmed(b)
elif mode == "pipe":
    a.publish_pipelined((b for i in range(n)), window=1000)
elif mode == "take":
    a.publish_pipelined((b for i in range(n)), window=1000)
    k = 0
    while k < n:
        ds = a.consume(1, 2)
        a.ack([t for t, _ in ds]); k += len(ds)
if a.server:
    a.close(); a.destroy()
os._exit(0)
"""


def total(path: str) -> int:
    try:
        text = open(path).read()
    except OSError:
        return 0
    return sum(int(v) for v in re.findall(r"(?:fsync|fdatasync|msync|dsync)=(\d+)", text))


def run(x, mode, n, size, o) -> int:
    cnt = os.path.join(o.dir, "count")
    path = os.path.join(o.dir, "flush-" + x.replace(".", "_"))
    for f in (cnt,):
        if os.path.exists(f):
            os.remove(f)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    env = dict(os.environ, BENCH_FSYNC_COUNT=cnt)
    if x.startswith("rabbit"):
        rabbit_node.stop()
        os.environ.update(BENCH_NODE_PRELOAD=o.shim, BENCH_FSYNC_COUNT=cnt)
        rabbit_node.start()
    else:
        env["LD_PRELOAD"] = o.shim
    p = subprocess.run(
        [sys.executable, "-c", CODE, x, path, mode, str(n), str(size)],
        cwd=ROOT,
        check=False,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if x.startswith("rabbit"):
        rabbit_node.stop()
        os.environ.pop("BENCH_NODE_PRELOAD")
        os.environ.pop("BENCH_FSYNC_COUNT")
    shutil.rmtree(path, ignore_errors=True)
    if p.returncode:
        print(p.stderr[-500:])
        return -1
    return total(cnt)


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--peers", default="all")
    p.add_argument("--skip", default="mem-*")
    p.add_argument("--shim", required=True)
    p.add_argument("--dir", required=True)
    p.add_argument("--out")
    p.add_argument("-n", type=int, default=1000)
    o = p.parse_args()
    os.makedirs(o.dir, exist_ok=True)
    skip, res = set(pick_peers(o.skip)), {}
    for x in pick_peers(o.peers):
        if x in skip:
            continue
        row = {}
        for mode, size in (("none", 1024), ("one", 1024), ("pipe", 1024), ("take", 1024), ("one", 16384)):
            row[f"{mode}-{size}"] = run(x, mode, 0 if mode == "none" else o.n, size, o)
        base = row["none-1024"]
        out = {k: round((v - base) / o.n, 3) for k, v in row.items() if k != "none-1024" and v >= 0}
        if "take-1024" in out and "pipe-1024" in out:
            out["take-1024"] = round(out["take-1024"] - out["pipe-1024"], 3)
        res[x] = out
        print(x, out, flush=True)
        if o.out:
            json.dump(res, open(o.out, "w"), indent=1)
    if rabbit_node.pid() is None and any(x.startswith("rabbit") for x in res):
        rabbit_node.start()


if __name__ == "__main__":
    main()
