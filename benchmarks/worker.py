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
    options = _options()
    adapter = load(options.adapter)
    try:
        if options.workload == "fill":
            fill(adapter, options)
            return
        result = reopen(adapter, options) if options.workload == "reopen" else measure(adapter, options)
        if not options.keep and hasattr(adapter, "destroy"):
            adapter.destroy()
        result["rss_kb"] = workloads.status_kb(os.getpid(), "VmHWM")
        result["runq_wait_s"] = _waited_for_a_core()
    except Exception as e:
        traceback.print_exc()
        with suppress(Exception):
            if hasattr(adapter, "destroy"):
                adapter.destroy()
        result = {"error": f"{type(e).__name__}: {e}"[:300]}
    print(json.dumps(result), flush=True)
    os._exit(0)


def _options() -> argparse.Namespace:
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
    return p.parse_args()


def reopen(adapter, options) -> dict:
    """Open what `fill` left: the time to the first message, and to the last."""
    began = workloads.clock()
    adapter.open(options.dir)
    opened = workloads.clock()
    if hasattr(adapter, "recover"):
        adapter.recover()
    first = adapter.consume(1, 60.0)
    there = workloads.clock()
    if first:
        adapter.ack([first[0][0]])
    drained = workloads.drain(adapter, options.expect - len(first), options.cap)
    adapter.close()
    return {
        "open_s": opened - began,
        "first_s": there - began,
        "recovered": drained["n"] + len(first),
        "drain_s": drained["secs"],
        "complete": drained["secs"] < options.cap,
    }


def fill(adapter, options) -> None:
    """Fill a directory, say so, and wait: for the word "close", or to be killed."""
    adapter.open(options.dir)
    n, seconds = workloads.fill(adapter, options.n, options.size, options.cap)
    print(json.dumps({"ready": n, "secs": seconds}), flush=True)
    if sys.stdin.readline().strip() != "close":
        time.sleep(3600)
        return
    began = workloads.clock()
    adapter.close()
    print(json.dumps({"close_s": workloads.clock() - began}), flush=True)


def measure(adapter, options) -> dict:
    """Run one of the workloads w1 to w7."""
    workload = options.workload
    adapter.open(options.dir, FAN if workload == "w5" else ("q",))
    if workload in TIMED:
        result = TIMED[workload](adapter, options.size, options.secs)
        if workload != "w2":
            adapter.close()
    elif workload == "w4":
        result = workloads.w4_backlog(adapter, options.dir, options.size, options.n, options.cap)
        began = workloads.clock()
        adapter.close()
        os.sync()
        result["close_s"] = workloads.clock() - began
        result["disk_closed"] = adapter.disk_bytes(options.dir)
        left = result["disk_closed"] - result["disk_before"]
        result["left_after_close"] = left / (result["n"] * options.size)
    elif workload == "w5":
        result = workloads.w5_fanout(adapter, options.dir, options.size, options.secs, FAN)
    else:
        raise SystemExit(f"unknown workload {workload}")
    return result


def _waited_for_a_core() -> float:
    """Seconds that this process's threads could have run and had no core."""
    waited = 0
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError, IndexError), open(f"/proc/self/task/{task}/schedstat") as file:
            waited += int(file.read().split()[1])
    return waited / 1e9


if __name__ == "__main__":
    main()
