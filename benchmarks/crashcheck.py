"""A check that a peer keeps what it confirmed, across SIGKILL.

    python -m benchmarks.crashcheck --peers all --dir SCRATCH --out results/crash.json

Round A: a child publishes, one confirm at a time, and reports each confirmed
number on a pipe; it is SIGKILLed at a random moment; the queue is reopened
and drained.  Lost = confirmed but not there.
Round B: the same with pipelined publishing (a batch is confirmed as a whole).
Round C: a child consumes and acks half of a backlog, then is SIGKILLed
holding unacked deliveries.  Lost = neither acked nor redelivered;
redelivered acks = acked before the kill but delivered again.
A server peer gets its server killed as well.
SIGKILL says nothing about power loss.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time

from benchmarks import ROOT, rabbit_node
from benchmarks.adapters import load
from benchmarks.run import pick_peers


def body(i: int) -> bytes:
    return b"%016x" % i + (b"%016x" % (i * 2654435761 % (1 << 64))) * 20


def ok(b: bytes) -> int:
    i = int(b[:16], 16)
    return i if b == body(i) else -1


def child_main(o) -> None:
    a = load(o.adapter)
    a.open(o.dir)
    if a.server and o.phase != "drain":
        time.sleep(3)  # a quorum queue (3.10.8) killed within its first second never elects a leader again
    out = os.fdopen(1, "wb", 0)
    if o.phase == "A":
        for i in range(10_000_000):
            a.publish_confirmed(body(i))
            out.write(b"%d\n" % i)
    elif o.phase == "B":
        i = 0
        while True:
            a.publish_pipelined((body(k) for k in range(i, i + 200)), window=200)
            i += 200
            out.write(b"%d\n" % (i - 1))
    elif o.phase == "C":
        a.publish_pipelined((body(k) for k in range(o.n)), window=500)
        out.write(b"filled\n")
        done = 0
        while done < o.n // 2:
            ds = a.consume(10, 5)
            a.ack([t for t, _ in ds])
            for _, b in ds:
                out.write(b"%d\n" % int(b[:16], 16))
            done += len(ds)
        time.sleep(o.settle)
        held = a.consume(20, 5)
        out.write(b"held %d\n" % len(held))
        time.sleep(3600)
    elif o.phase == "drain":
        if hasattr(a, "recover"):
            a.recover()
        got = []
        idle = 0
        while idle < 2:
            ds = a.consume(500, 1.0)
            if not ds:
                idle += 1
                continue
            idle = 0
            got += [ok(b) for _, b in ds]
            a.ack([t for t, _ in ds])
        print(json.dumps(got), flush=True)
        if hasattr(a, "destroy"):
            a.close()
            a.destroy()
    os._exit(0)


def spawn(adapter, phase, path, n=0, settle=0.0):
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "benchmarks.crashcheck",
            "--child",
            "--adapter",
            adapter,
            "--phase",
            phase,
            "--dir",
            path,
            "--n",
            str(n),
            "--settle",
            str(settle),
        ],
        cwd=ROOT,
        env=dict(os.environ, BENCH_LEASE="5"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def crash(p, server):
    p.kill()
    if server:
        rabbit_node.kill()
    rest = p.stdout.read()
    p.wait()
    if server:
        rabbit_node.start()
    return rest


def drain(adapter, path):
    p = spawn(adapter, "drain", path)
    out, err = p.communicate(timeout=300)
    for line in out.decode().splitlines():
        if line.startswith("["):
            return json.loads(line), ""
    return None, err.decode()[-400:]


def one(adapter, phase, o, rep) -> dict:
    server = adapter.startswith("rabbit")
    path = os.path.join(o.dir, f"crash-{adapter}-{phase}-{os.getpid()}-{rep}".replace(".", "_"))
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    try:
        if phase in "AB":
            p = spawn(adapter, phase, path)
            first = p.stdout.readline()
            if not first:
                return {"error": p.stderr.read().decode()[-400:]}
            time.sleep(random.uniform(0.3, 1.0))
            rest = crash(p, server)
            last = int((first + rest).rsplit(b"\n", 1)[0].split(b"\n")[-1])
            got, err = drain(adapter, path)
            if got is None:
                return {"confirmed": last + 1, "error": err}
            have = set(got)
            good = [g for g in got if g >= 0]
            return {
                "confirmed": last + 1,
                "lost": sum(1 for i in range(last + 1) if i not in have),
                "torn": got.count(-1),
                "dup": len(got) - len(have),
                "extra": sum(1 for g in have if g > last),
                "ordered": good == sorted(good),
            }
        n = 400
        p = spawn(adapter, "C", path, n, o.settle)
        acked, held = set(), 0
        for raw in p.stdout:
            line = raw.decode().strip()
            if line.startswith("held"):
                held = int(line.split()[1])
                break
            if line != "filled":
                acked.add(int(line))
        else:
            return {"error": p.stderr.read().decode()[-400:]}
        crash(p, server)
        got, err = drain(adapter, path)
        if got is None:
            return {"acked": len(acked), "held": held, "error": err}
        have = set(got)
        return {
            "acked": len(acked),
            "held": held,
            "lost": sum(1 for i in range(n) if i not in have and i not in acked),
            "redelivered_acks": len(have & acked),
            "torn": got.count(-1),
            "dup": len(got) - len(have),
        }
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}
    finally:
        shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--peers", default="all")
    p.add_argument("--skip", default="mem-*")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--settle", type=float, default=0.0, help="seconds between the last ack and the kill")
    p.add_argument("--dir", required=True)
    p.add_argument("--out")
    p.add_argument("--strict", action="store_true", help="exit 1 when something was lost or a run failed")
    p.add_argument("--child", action="store_true")
    p.add_argument("--adapter")
    p.add_argument("--phase")
    p.add_argument("--n", type=int, default=0)
    o = p.parse_args()
    if o.child:
        child_main(o)
        return
    skip = set(pick_peers(o.skip))
    res = []
    if o.out and os.path.exists(o.out):
        res = json.load(open(o.out))
    for x in pick_peers(o.peers):
        if x in skip:
            continue
        for phase in "ABC":
            for rep in range(o.repeats):
                r = {"peer": x, "phase": phase, "rep": rep, **one(x, phase, o, rep)}
                res.append(r)
                print(r, flush=True)
                if o.out:
                    json.dump(res, open(o.out, "w"), indent=0)
    if o.strict and any(r.get("lost") or r.get("torn") or "error" in r for r in res):
        raise SystemExit("something was lost, see above")


if __name__ == "__main__":
    main()
