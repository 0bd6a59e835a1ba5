"""One (adapter, workload, size) in its own process; prints one JSON line."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from contextlib import suppress

from benchmarks import workloads
from benchmarks.adapters import load

FAN = [f"f{i}" for i in range(10)]
TIMED = {
    "w1": workloads.w1_confirmed, "w2": workloads.w2_pipelined, "w3s": workloads.w3_stream, "w3c": workloads.w3_strict,
    "w7": workloads.w7_producers,
}  # fmt: skip


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--adapter", required=True)
    p.add_argument("--workload", required=True)
    p.add_argument("--size", type=int, default=1024)
    p.add_argument("--secs", type=float, default=3.0)
    p.add_argument("--n", type=int, default=200_000)
    p.add_argument("--cap", type=float, default=60.0)
    p.add_argument("--dir", required=True)
    p.add_argument("--expect", type=int, default=0)
    p.add_argument("--keep", action="store_true")
    o = p.parse_args()
    a = load(o.adapter)
    w = o.workload
    res: dict = {}
    try:
        if w == "reopen":
            t0 = workloads.clock()
            a.open(o.dir)
            t1 = workloads.clock()
            if hasattr(a, "recover"):
                a.recover()
            first = a.consume(1, 60.0)
            t2 = workloads.clock()
            if first:
                a.ack([first[0][0]])
            d = workloads.drain(a, o.expect - len(first), o.cap)
            res = {
                "open_s": t1 - t0,
                "first_s": t2 - t0,
                "recovered": d["n"] + len(first),
                "drain_s": d["secs"],
                "complete": d["secs"] < o.cap,
            }
            a.close()
        elif w == "fill":
            a.open(o.dir)
            n, dt = workloads.fill(a, o.n, o.size, o.cap)
            print(json.dumps({"ready": n, "secs": dt}), flush=True)
            if sys.stdin.readline().strip() == "close":
                t0 = workloads.clock()
                a.close()
                print(json.dumps({"close_s": workloads.clock() - t0}), flush=True)
                return
            time.sleep(3600)  # until the parent kills us
        else:
            queues = FAN if w == "w5" else ("q",)
            a.open(o.dir, queues)
            if w in TIMED:
                res = TIMED[w](a, o.size, o.secs)
            elif w == "w4":
                res = workloads.w4_backlog(a, o.dir, o.size, o.n, o.cap)
            elif w == "w5":
                res = workloads.w5_fanout(a, o.dir, o.size, o.secs, FAN)
            else:
                raise SystemExit(f"unknown workload {w}")
            if w == "w4":
                t0 = workloads.clock()
                a.close()
                os.sync()
                res["close_s"] = workloads.clock() - t0
                res["disk_closed"] = a.disk_bytes(o.dir)
                res["left_after_close"] = (res["disk_closed"] - res["disk_before"]) / (res["n"] * o.size)
            elif w not in ("w2", "w5"):
                a.close()
        if not o.keep and hasattr(a, "destroy"):
            a.destroy()
        res["rss_kb"] = workloads.status_kb(os.getpid(), "VmHWM")
        wait = 0
        for t in os.listdir("/proc/self/task"):
            try:
                wait += int(open(f"/proc/self/task/{t}/schedstat").read().split()[1])
            except (OSError, IndexError):
                pass
        res["runq_wait_s"] = wait / 1e9
    except Exception as e:
        traceback.print_exc()
        with suppress(Exception):
            if hasattr(a, "destroy"):
                a.destroy()
        res = {"error": f"{type(e).__name__}: {e}"[:300]}
    print(json.dumps(res), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
