"""A private RabbitMQ node on 127.0.0.1 (own data, log, epmd and cookie).

    python -m benchmarks.rabbit_node start|stop|kill|status --base DIR [--port 5674]

The RabbitMQ adapters read the same settings from the environment:
BENCH_RABBIT_BASE and BENCH_RABBIT_PORT.
"""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import time


def base_dir() -> str:
    b = os.environ.get("BENCH_RABBIT_BASE")
    if not b:
        raise SystemExit("set BENCH_RABBIT_BASE to a directory for the node's data")
    return os.path.abspath(b)


def port() -> int:
    return int(os.environ.get("BENCH_RABBIT_PORT", "5674"))


def data_dir() -> str:
    return os.path.join(base_dir(), "mnesia", "rabbit_c@localhost")


def sbin() -> str:
    found = sorted(glob.glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"))
    w = shutil.which("rabbitmq-server")
    if not found and not w:
        raise SystemExit("no RabbitMQ installed")
    return found[-1] if found else os.path.dirname(w)


def env() -> dict:
    b, p = base_dir(), port()
    e = {k: v for k, v in os.environ.items() if not k.startswith(("RABBITMQ_", "ERL_"))}
    e.update(
        {
            "HOME": os.path.join(b, "home"),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(p - 1100),
            "HOSTNAME": "localhost",
            "RABBITMQ_NODENAME": "rabbit_c@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(p),
            "RABBITMQ_DIST_PORT": str(p + 20000),
            "RABBITMQ_CONF_ENV_FILE": os.path.join(b, "none.conf"),
            "RABBITMQ_CONFIG_FILE": os.path.join(b, "rabbitmq"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": os.path.join(b, "advanced.config"),
            "RABBITMQ_MNESIA_BASE": os.path.join(b, "mnesia"),
            "RABBITMQ_LOG_BASE": os.path.join(b, "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": os.path.join(b, "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": os.path.join(b, "generated"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CTL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
    )
    return e


def pid() -> int | None:
    try:
        p = int(open(os.path.join(base_dir(), "beam.pid")).read())
        if b"beam" in open(f"/proc/{p}/cmdline", "rb").read():
            return p
    except (OSError, ValueError):
        pass
    return None


def listening(p: int) -> bool:
    with socket.socket() as s:
        s.settimeout(0.5)
        return s.connect_ex(("127.0.0.1", p)) == 0


def amqp_ok(p: int) -> bool:
    """The broker answers the AMQP header with Connection.Start."""
    try:
        with socket.create_connection(("127.0.0.1", p), timeout=1) as s:
            s.settimeout(1)
            s.sendall(b"AMQP\x00\x00\x09\x01")
            return s.recv(1)[:1] == b"\x01"
    except OSError:
        return False


def start(timeout: float = 60, poll: float = 0.02) -> float:
    """Start; return seconds from exec to the first AMQP answer."""
    b, p = base_dir(), port()
    if pid():
        return 0.0
    for d in ("log", "generated", "home", "mnesia"):
        os.makedirs(os.path.join(b, d), exist_ok=True)
    with open(os.path.join(b, "rabbitmq.conf"), "w") as f:
        f.write(
            f"listeners.tcp.1 = 127.0.0.1:{p}\nlog.file.level = warning\ndisk_free_limit.absolute = 2GB\n"
        )
    for f, txt in (("advanced.config", "[].\n"), ("enabled_plugins", "[].\n")):
        with open(os.path.join(b, f), "w") as fh:
            fh.write(txt)
    e = env()
    epmd_port = p - 1100
    if not listening(epmd_port):
        ep = subprocess.Popen(
            ["epmd", "-address", "127.0.0.1", "-port", str(epmd_port)],  # noqa: S607 - of the PATH, as RabbitMQ takes it
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        open(os.path.join(b, "epmd.pid"), "w").write(str(ep.pid))
        while not listening(epmd_port):
            time.sleep(0.05)
    for _ in range(200):  # a killed node's sockets linger for a moment
        if not listening(p):
            break
        time.sleep(0.05)
    else:
        raise SystemExit(f"port {p} is taken")
    e["RUNNING_UNDER_SYSTEMD"] = "true"  # the script then execs the VM
    t0 = time.perf_counter()
    proc = subprocess.Popen(
        [os.path.join(sbin(), "rabbitmq-server")],
        env=e,
        cwd=b,
        stdin=subprocess.DEVNULL,
        stdout=open(os.path.join(b, "log", "stdout"), "ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    open(os.path.join(b, "beam.pid"), "w").write(str(proc.pid))
    while time.perf_counter() - t0 < timeout:
        if proc.poll() is not None:
            raise SystemExit("the node died, see its log/stdout")
        if amqp_ok(p):
            return time.perf_counter() - t0
        time.sleep(poll)
    raise SystemExit("the node did not come up")


def _wait_gone(p: int, timeout: float = 90) -> None:
    end = time.time() + timeout
    while time.time() < end:
        try:
            os.waitpid(p, os.WNOHANG)
        except ChildProcessError:
            pass
        try:
            if open(f"/proc/{p}/stat").read().split(") ")[1][0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.05)
    raise SystemExit(f"pid {p} did not go away")


def stop() -> float:
    """Clean stop (SIGTERM = init:stop)."""
    p = pid()
    t0 = time.perf_counter()
    if p:
        os.kill(p, signal.SIGTERM)
        _wait_gone(p)
    return time.perf_counter() - t0


def kill() -> None:
    p = pid()
    if p:
        os.kill(p, signal.SIGKILL)
        _wait_gone(p)


def stop_epmd() -> None:
    try:
        p = int(open(os.path.join(base_dir(), "epmd.pid")).read())
        if b"epmd" in open(f"/proc/{p}/cmdline", "rb").read():
            os.kill(p, signal.SIGTERM)
    except (OSError, ValueError):
        pass


def main() -> None:
    a = argparse.ArgumentParser()
    a.add_argument("cmd", choices=["start", "stop", "kill", "status"])
    a.add_argument("--base")
    a.add_argument("--port", type=int)
    o = a.parse_args()
    if o.base:
        os.environ["BENCH_RABBIT_BASE"] = o.base
    if o.port:
        os.environ["BENCH_RABBIT_PORT"] = str(o.port)
    if o.cmd == "start":
        print(f"up after {start():.2f} s, pid {pid()}")
    elif o.cmd == "stop":
        print(f"stopped in {stop():.2f} s")
        stop_epmd()
    elif o.cmd == "kill":
        kill()
    print(pid())


if __name__ == "__main__":
    sys.exit(main())
