"""Run peers x workloads x sizes, repeated, each in a fresh process.

    python -m benchmarks.run --peers all --workloads w1,w2 --sizes 100,1024,16384 \
        --repeats 3 --dir SCRATCH --out results/my.json [--lock FILE]

Results are appended to the JSON file after every run; a (peer, workload,
size) that already has enough repeats in it is skipped, so an interrupted run
continues.  `python -m benchmarks.report` makes the tables.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time

from benchmarks import ROOT, rabbit_node
from benchmarks.adapters import registry

SIZED = {"w1", "w2", "w3s", "w3c", "w7"}
ALL = ["w1", "w2", "w3s", "w3c", "w4", "w5", "w6", "w7"]


def busy_share() -> float:
    def snap():
        v = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        return sum(v), v[3] + v[4]

    t0, i0 = snap()
    time.sleep(0.3)
    t1, i1 = snap()
    return 1 - (i1 - i0) / max(1, t1 - t0)


class Turn:
    """The lock, kept for several short runs in a row (at most ~`secs`), then
    given up so that others get theirs.
    """

    def __init__(self, lock, secs: float, limit: float, patience: float):
        self.lock, self.secs, self.limit, self.patience = lock, secs, limit, patience
        self.f = None
        self.since = 0.0

    @contextlib.contextmanager
    def run(self):
        if self.lock and self.f is None:
            self.f = open(self.lock, "a")
            fcntl.flock(self.f, fcntl.LOCK_EX)
            self.since = time.time()
        end = time.time() + self.patience
        busy = busy_share()
        while busy > self.limit and time.time() < end:
            busy = busy_share()
        os.sync()
        try:
            yield busy
        finally:
            if self.f and time.time() - self.since > self.secs:
                self.release()

    def release(self):
        if self.f:
            fcntl.flock(self.f, fcntl.LOCK_UN)
            self.f.close()
            self.f = None
            time.sleep(0.3)


HZ = os.sysconf("SC_CLK_TCK")


def cpu_used(server: bool) -> tuple[float, float, float]:
    """(wall, busy CPU seconds of the machine, CPU seconds of us and our server)."""
    v = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    busy = (sum(v) - v[3] - v[4]) / HZ
    r, c = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    mine = r.ru_utime + r.ru_stime + c.ru_utime + c.ru_stime
    if server and rabbit_node.pid():
        f = open(f"/proc/{rabbit_node.pid()}/stat").read().split(") ")[1].split()
        mine += (int(f[11]) + int(f[12])) / HZ
    return time.time(), busy, mine


def child(args, env=None):
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", *args],
        cwd=ROOT,
        env=os.environ | (env or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(p, timeout):
    try:
        out, err = p.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
        return {"error": f"timeout after {timeout} s"}
    for line in reversed(out.strip().splitlines()):
        if line.startswith("{"):
            r = json.loads(line)
            if "error" in r:
                r["trace"] = err[-1500:]
            return r
    return {"error": f"no result, rc {p.returncode}", "trace": err[-1500:]}


def w6(adapter, o, size, path, kill: bool) -> dict:
    """fill, then clean close or SIGKILL, then reopen in a new process."""
    server = adapter.startswith("rabbit")
    base = [
        "--adapter",
        adapter,
        "--size",
        str(size),
        "--n",
        str(o.n),
        "--cap",
        str(o.cap),
        "--dir",
        path,
        "--keep",
    ]
    p = child([*base, "--workload", "fill"])
    line = p.stdout.readline()
    if not line.startswith("{") or "ready" not in line:
        p.kill()
        return {"error": "fill failed: " + line + p.stderr.read()[-800:]}
    n = json.loads(line)["ready"]
    res = {"n": n, "kill": kill}
    if kill:
        p.send_signal(signal.SIGKILL)
        p.wait()
        if server:
            rabbit_node.kill()
    else:
        p.stdin.write("close\n")
        p.stdin.flush()
        line = p.stdout.readline()
        res["close_s"] = json.loads(line)["close_s"] if line.startswith("{") else None
        p.wait()
        if server:
            res["close_s"] = rabbit_node.stop()
    boot = rabbit_node.start() if server else 0.0
    r = finish(
        child([x for x in base if x != "--keep"] + ["--workload", "reopen", "--expect", str(n)]),
        o.cap * 2 + 120,
    )
    if "error" in r:
        return r
    res.update(r)
    res["boot_s"] = boot
    res["first_s"] += boot
    return res


def pick_peers(spec: str) -> list[str]:
    """'all', 'a,b', 'rabbit*' -> names of available peers."""
    have, missing = registry()
    out: list[str] = []
    for s in spec.split(","):
        if s == "all":
            out += sorted(have)
        elif s.endswith("*"):
            out += sorted(x for x in have if x.startswith(s[:-1]))
        elif s:
            if s not in have:
                raise SystemExit(f"no such peer {s}; have {sorted(have)}; unavailable {missing}")
            out.append(s)
    return list(dict.fromkeys(out))


SHOWN = (
    "rate", "p50_ms", "p99_ms", "drain_rate", "fill_rate", "first_s", "recovered", "n", "error",
    "disk_per_msg", "order_errors", "lost", "other_cpu",
)  # fmt: skip


def plan(peers: list[str], o):
    """(round, workload, size, peer) in the order to run them: each round goes once through everything."""
    for rep in range(o.repeats):
        for w in o.workloads.split(","):
            sizes = [int(s) for s in o.sizes.split(",")] if w in SIZED else [16384 if w == "w5" else 1024]
            names = ["w6-clean", "w6-kill"] if w == "w6" else [w]
            for size in sizes:
                for x in peers:
                    for name in names:
                        yield rep, name, size, x


def enough(runs: list[dict], x, w, size, rep, o) -> bool:
    """Undisturbed runs up to this round, or attempts."""
    mine = [r for r in runs if (r["peer"], r["workload"], r["size"], r.get("tag", "")) == (x, w, size, o.tag)]
    clean = sum(1 for r in mine if r.get("other_cpu", 0) < o.noise and "error" not in r)
    return clean > rep or len(mine) > rep + o.extra


def one_run(x: str, w: str, size: int, rep: int, turn: Turn, o) -> dict:
    """One row of the results."""
    path = os.path.join(o.dir, f"{x}-{w}-{os.getpid()}-{rep}".replace(".", "_"))
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    server, reopens = x.startswith("rabbit"), w.startswith("w6")
    with turn.run() as busy:
        load = os.getloadavg()[0]
        before = cpu_used(server)
        if reopens:
            r = w6(x, o, size, path, kill=w == "w6-kill")
        else:
            scale = {"secs": o.secs, "n": o.n, "cap": o.cap}
            args = ["--adapter", x, "--workload", w, "--size", str(size), "--dir", path]
            args += [text for key, value in scale.items() for text in (f"--{key}", str(value))]
            r = finish(child(args), o.secs * 8 + 2 * o.cap + 60)
        after = cpu_used(server)
    shutil.rmtree(path, ignore_errors=True)
    r["took_s"], busy_s, own_s = (b - a for a, b in zip(before, after, strict=True))
    # CPUs' worth of work by everybody else during the run
    r["other_cpu"] = round(max(0.0, busy_s - own_s) / r["took_s"], 2)
    if reopens:
        r["other_cpu"] = -1.0 if server else 0.0
    row = {"peer": x, "workload": w, "size": size, "rep": rep, "tag": o.tag}
    return {**row, "busy_before": round(busy, 3), "load": load, "at": time.time(), **r}


def save(data: dict, path: str) -> None:
    with open(path + ".tmp", "w") as f:
        json.dump(data, f, indent=0)
    os.replace(path + ".tmp", path)


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser()
    p.add_argument("--peers", default="all", help="comma list, prefix* allowed, or 'all'")
    p.add_argument("--skip", default="")
    p.add_argument("--workloads", default=",".join(ALL))
    p.add_argument("--sizes", default="100,1024,16384")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--secs", type=float, default=3.0)
    p.add_argument("--n", type=int, default=200_000, help="backlog of W4/W6")
    p.add_argument("--cap", type=float, default=60.0, help="seconds per phase of W4/W6")
    p.add_argument("--dir", required=True, help="scratch directory on the disk to measure")
    p.add_argument("--out", required=True, help="JSON file, appended to")
    p.add_argument("--lock", help="flock this file around every timed run")
    p.add_argument("--noise", type=float, default=0.3,
                   help="a run counts as clean when others used fewer CPUs than this")  # fmt: skip
    p.add_argument(
        "--quiet", type=float, default=0.25, help="start only when the CPUs are less busy than this"
    )
    p.add_argument("--turn", type=float, default=30.0, help="seconds to keep the lock over several runs")
    p.add_argument("--patience", type=float, default=4.0, help="seconds to wait for that")
    p.add_argument("--extra", type=int, default=2, help="attempts beyond --repeats to get clean runs")
    p.add_argument("--tag", default="", help="stored with every row, e.g. slowdisk5ms")
    p.add_argument("--list", action="store_true")
    p.add_argument("--strict", action="store_true", help="exit 1 when a run failed")
    return p.parse_args()


def main() -> None:
    have, missing = registry()
    o = options()
    skip = set(pick_peers(o.skip))
    peers = [x for x in pick_peers(o.peers) if x not in skip]
    if o.list:
        for x in peers:
            a = have[x]()
            print(f"{x:26} {a.durability:6} {a.ack_mode:8} {a.notes}")
        print("unavailable:", missing)
        return
    data = {"runs": []}
    if os.path.exists(o.out):
        with open(o.out) as f:
            data = json.load(f)
    machine = {"python": platform.python_version(), "kernel": platform.release(), "cpus": os.cpu_count()}
    data.setdefault("machine", machine)
    data.setdefault("peers", {})
    for x in peers:
        a = have[x]()
        data["peers"][x] = {"durability": a.durability, "ack": a.ack_mode, "notes": a.notes,
                            "batch": a.native_batch, "fanout": a.native_fanout}  # fmt: skip
    turn = Turn(o.lock, o.turn, o.quiet, o.patience)
    for rep, w, size, x in plan(peers, o):
        if enough(data["runs"], x, w, size, rep, o):
            continue
        row = one_run(x, w, size, rep, turn, o)
        data["runs"].append(row)
        save(data, o.out)
        brief = {k: (round(v, 3) if isinstance(v, float) else v) for k, v in row.items() if k in SHOWN}
        print(f"{rep} {w:8} {size:6} {x:26} {brief}", flush=True)
    turn.release()
    if o.strict and any("error" in r for r in data["runs"]):
        raise SystemExit("a run failed, see above")


if __name__ == "__main__":
    main()
