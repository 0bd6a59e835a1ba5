"""Mutations of the broker's code, and the workloads that exercise them (tools/mutants.py).

The mutations are in `tools/mutations/*.diff`, each as a small patch below the module that it is for:

    --- message_store/compact.py

    @@ compaction-cuts-last (collect): a compaction cuts off the end of the last record
    -        file.truncate(size)
    +        file.truncate(size - 1)

Name, workload and the fault in the words of a user of the broker; then lines that go (-), that come (+) and that stay ( ).
Those that go and stay must be in the module exactly once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from warrenmq.location import HOME

_HUNK = re.compile(r"@@ (?P<name>[\w-]+) \((?P<workload>\w+)\): (?P<does>.+)")


class Mutation(NamedTuple):
    """A change of one module that makes the broker wrong."""

    name: str
    does: str
    """The fault, in the words of a user of the broker."""
    module: str
    """Path below the package."""
    old: str
    """Whole lines, which must be there exactly once."""
    new: str
    workload: str
    """The script that exercises it (WORKLOADS)."""

    def applied(self, source: str) -> str:
        """The module with the mutation; ValueError when its lines are not there exactly once, so that no
        mutation is silently none.
        """
        before, *after = re.split(f"^{re.escape(self.old)}", source, flags=re.MULTILINE)
        if len(after) != 1:
            msg = f"mutation {self.name}: its lines are {len(after)} times in {self.module}, not once; adapt it to the code"
            raise ValueError(msg)
        return f"{before}{self.new}{after[0]}"


def parse(text: str) -> Iterator[Mutation]:
    """The mutations of a file of patches."""
    module = ""
    for part in re.split(r"\n(?=--- |@@ )", text)[1:]:
        head, *lines = part.splitlines()
        if head.startswith("--- "):
            module = head.removeprefix("--- ")
        elif hunk := _HUNK.fullmatch(head):
            old, new = (
                "".join(f"{line[1:]}\n" for line in lines if line[:1] in signs) for signs in (" -", " +")
            )
            yield Mutation(hunk["name"], hunk["does"], module, old, new, hunk["workload"])
        else:
            msg = f"{head!r} does not begin a mutation; write `@@ name (workload): what is wrong then`"
            raise ValueError(msg)


MUTATIONS = tuple(
    mutation
    for path in sorted(Path(HOME, "tools", "mutations").glob("*.diff"))
    for mutation in parse(path.read_text(encoding="utf-8"))
)
"""Every mutation, by file and module."""


def _lines(steps: str) -> str:
    """A script of `warrenmq simulate` out of steps that are separated by semicolons; `N x` before one repeats it."""
    lines: list[str] = []
    for step in steps.split(";"):
        times, is_repeated, repeated = step.strip().partition(" x ")
        lines += [repeated] * int(times) if is_repeated else [step.strip()]
    return "\n".join(lines)


_SOME_ACKED = "get; consume count=3; get; consume count=3; get; consume count=3; get; consume count=3"
"""Most of what is in queue `a`, so that files of a store become garbage with something between."""
_GROUPS = "; ".join(["4 x publish size=900; publish size=901"] * 5)
"""Files of a store whose last record is a byte longer than the others."""
_LAST_LEFT = "; ".join(["consume count=1; get; consume count=2; get"] * 5)
"""Garbage in each of those files: the first record, and two before the last."""


def _cuts(operations: Iterable[int]) -> str:
    """Lives of a broker that end before these operations of a collector."""
    return "; ".join(
        f"unordered; 2 x publish_many count=20 size=900; settle; crash_at operation={operation} of=collector; {_SOME_ACKED}; {_SOME_ACKED}; "
        "sleep ms=16000; 2 x consume count=10 prefetch=20"
        for operation in operations
    )


_MIXED = "; ".join(["publish_many count=2 size=900; settle; publish_many to=b count=4 size=900; settle"] * 5)
"""Files of a store with messages of two queues."""


_RETURNED = "; ".join(
    [
        "3 x publish_many count=20 size=900; settle; 3 x consume count=10 prefetch=20 ack=3; 10 x nack pick=1; 2 x nack pick=2; 2 x ack pick=2; 3 x nack pick=2; "
        "ack pick=1; 8 x get; 2 x ack pick=1; 4 x nack pick=5; 2 x consume count=10 prefetch=20 ack=2; 4 x nack pick=2; ack; 12 x get; 8 x ack; "
        "3 x consume count=10 prefetch=20; pressure high=2; sleep ms=2000; 2 x publish_many count=20; 3 x publish persistent=0; 2 x publish_many; "
        "sleep ms=2000; 3 x publish; 4 x consume count=10 prefetch=20; pressure high=0"
    ]
    * 2
)
"""Messages that come back to a queue most of which is on disk, while others are held; and one that pages by
the memory monitor.
"""


def _beside(stops: Iterable[tuple[int, int]]) -> str:
    """Reads and acks of what is in files that a collector works on, which stands still before one of its
    operations, some ms after the acks, while a read begins.
    """
    return "; restart; purge; purge queue=b; ".join(
        f"{_MIXED}; 3 x get; slow ms=500 of=collector operation={operation}; 2 x consume queue=b count=10 prefetch=20; sleep ms={ms}; "
        "ack; nack pick=1; slow ms=500 of=reader; 4 x get; ack pick=2; 2 x consume count=10; sleep ms=2000; consume count=10 prefetch=20"
        for operation, ms in stops
    )


WORKLOADS = {
    name: _lines(steps)
    for name, steps in {
        "aimed": _cuts(range(4, 13)),
        "beside": _beside([*((operation, ms) for ms in (30, 300) for operation in (1, 3, 8, 9)), (10, 10)]),
        "sizes": f"{_GROUPS}; settle; {_LAST_LEFT}; sleep ms=16000; sleep ms=16000; crash; consume count=10 prefetch=20; restart; "
        f"{_GROUPS}; settle; {_LAST_LEFT}; sleep ms=16000; sleep ms=16000; crash; consume count=10 prefetch=20",
        "acked": "publish_many count=5; publish_many count=5 size=900; settle; 3 x get; 3 x ack; sleep ms=2000; crash cut=0; get; ack; sleep ms=2000; "
        "crash; restart; get; ack; sleep ms=2000; crash; get; publish wait=1; crash cut=0; publish wait=1; restart; get; crash",
        "alarm": "publish wait=1; pressure; sleep ms=16000; publish; pressure high=0; publish wait=1; get",
        "asleep": "; ".join(
            f"burst count=3; sleep ms=30; burst to=all count=3; get; sleep ms=300; publish wait=1; sleep ms=300; ack; 3 x publish to=d; get queue=d; sleep ms=300; "
            f"reject; sleep ms=300; get queue=dead; ack; slow ms=500 operation={operation}; publish size=900; sleep ms=300; settle; get; sleep ms=300; nack; "
            f"publish wait=1; sleep ms=1; slow ms=50 operation={operation}; sleep ms=30; burst count=3; 2 x get; sleep ms=300; crash cut=0; 2 x get; sleep ms=300; "
            f"2 x nack; sleep ms=300; get; ack; sleep ms=300; purge; restart; publish wait=1; sleep ms=300; consume queue=b count=10 prefetch=20"
            for operation in range(1, 4)
        ),
        "bodies": "publish_many size=900; publish size=1500; publish_many size=900 count=20; settle; 3 x get; ack; nack; 2 x publish size=900; "
        "consume count=10 prefetch=20; publish size=900 wait=1; crash; consume count=3; publish size=150 wait=1; restart; publish_many size=900; "
        "settle; crash cut=0; get; ack; publish size=900 wait=1; sleep ms=16000; crash; consume count=10",
        "change": "publish_many count=20; publish_many size=900; settle; consume count=3; restart profile=modern; consume count=3; publish_many; settle; "
        "restart profile=classic; get; ack; publish wait=1; restart profile=modern; crash; restart profile=classic; consume count=10",
        "converted": "; ".join(
            f"publish_many count=20; publish size=900; settle; crash_at operation={operation}; restart profile={profile}; get; ack; publish wait=1"
            for operation in range(2, 30, 5)
            for profile in ("modern", "classic")
        ),
        "moved": "restart profile=modern; publish wait=1; 5 x publish_many count=500; settle; restart profile=classic; crash; publish wait=1; get; ack; "
        "crash; restart profile=modern; publish wait=1; crash; get; ack; publish wait=1",
        "collect": f"2 x publish_many count=20 size=900; publish_many count=20 size=150; publish_many count=5 size=1500; settle; {_SOME_ACKED}; "
        f"{_SOME_ACKED}; 2 x sleep ms=16000; get; crash; publish_many count=20 size=1500; settle; {_SOME_ACKED}; {_SOME_ACKED}; sleep ms=16000; "
        "crash_at operation=8; consume count=10; sleep ms=16000; consume count=10; sleep ms=16000; crash; restart; 2 x consume count=10 prefetch=20; "
        f"publish_many count=20 size=900; settle; {_SOME_ACKED}; sleep ms=70000; restart; consume count=10 prefetch=20; publish size=900; sleep ms=70000; restart",
        "consume": "publish_many count=20; settle; consume count=3 prefetch=20 ack=2; ack pick=1; get; publish_many; consume count=5 prefetch=3 ack=3; "
        "ack pick=1; ack; consume count=1 prefetch=20; nack; 3 x get; publish wait=1; crash; consume count=10 ack=2; restart; consume count=10",
        "credit": "publish wait=1; get; publish_many count=500; 2 x publish; settle; publish_many count=60 size=900; 3 x publish size=900; settle; consume count=10; "
        "publish_many count=60 size=900; publish size=900 wait=1; purge; publish wait=1",
        "dead": "3 x publish to=d; publish to=d size=900; settle; 3 x get queue=d; 2 x reject; sleep ms=300; get queue=dead; sleep ms=300; restart; "
        "get queue=dead; get queue=d; reject; reject; sleep ms=300; crash; get queue=dead; ack; get queue=dead; ack",
        "delete": "publish_many; publish_many to=all size=900; publish to=b wait=1; settle; delete; publish; publish to=all size=900; settle; restart; "
        "publish_many size=900; settle; delete queue=b; publish_many; settle; crash; publish to=all; settle; delete; crash; sleep ms=16000; get queue=b; "
        "publish_many to=b size=900; publish_many count=20 size=900; publish_many to=b size=900; settle; delete; sleep ms=70000; restart; get queue=b",
        "full": "publish_many size=900; settle; full; publish wait=1; sleep ms=300; 2 x publish size=900; sleep ms=300; space; settle; publish wait=1; publish size=900 wait=1; full room=1000; "
        "publish_many size=900; get; ack; space; settle; publish size=900 wait=1; full room=5000; 2 x publish_many count=20 size=150; space; settle; "
        "publish wait=1; crash; consume count=10; restart",
        "restarts": "; ".join(
            f"publish_many count=5; slow ms=50; 6 x burst count=8; 8 x publish; crash_at operation={operation}; sleep ms=30; settle; "
            "consume count=10 prefetch=20; publish wait=1"
            for operation in range(1, 24)
        ),
        "torn": "; ".join(
            f"crash_at operation={operation}; publish_many count=5 size=900; publish size=900; sleep ms=300; get; ack; consume count=3; publish size=900 wait=1"
            for operation in range(1, 15)
        ),
        "index": "2 x publish_many count=20; settle; 2 x get; consume count=10 prefetch=20; publish wait=1; crash; get; ack; publish_many; settle; "
        "consume count=10; sleep ms=300; crash_at operation=5; consume count=3; publish wait=1; restart; consume count=10; publish wait=1; crash; "
        "publish_many count=20; settle; crash; consume count=10 prefetch=20; publish wait=1; crash cut=0; get; ack; publish wait=1; crash; "
        "3 x publish wait=1; crash; consume count=10 prefetch=20",
        "returned": _RETURNED,
        "kill": "publish_many; consume count=3; kill how=error; settle; publish_many count=20 size=900; get; kill how=error; consume count=3; publish_many; burst; kill how=sync; settle; publish; kill how=sync; crash; consume count=10; 4 x burst count=8; kill; settle; 4 x burst count=8; kill victim=queue_sup; settle; publish_many count=20; burst count=8; kill; publish; settle; publish_many size=900; publish size=900; kill; settle; publish; publish to=b; "
        "burst count=3; kill victim=queue_sup; settle; publish_many to=all size=900; kill victim=msg_store_persistent; settle; 2 x publish size=900; "
        "kill; publish wait=1; consume count=3; kill victim=vhost_sup; publish wait=1; consume count=10",
        "mixed": "publish to=a.x; publish to=a.x; 3 x publish; publish to=a.x; publish; 2 x publish to=a.x; settle; consume count=10 prefetch=20; publish; publish to=all; publish; publish_many; publish; publish to=b; publish; publish priority=1; publish; consume count=10 prefetch=20",
        "overtaken": "8 x publish size=900 persistent=0; purge; 8 x publish size=900 persistent=0; consume count=10; 4 x publish size=900; get; ack; "
        "consume count=3; publish size=900 wait=1; 5 x publish size=1500 persistent=0; 3 x get; 3 x ack; publish_many size=900; purge; settle; "
        "sleep ms=16000; crash",
        "paging": "6 x publish size=900; publish_many count=20 size=900; 4 x publish size=900 persistent=0; 3 x get; publish_many count=20; 2 x publish persistent=0 size=150; "
        "ack pick=1; nack; get; nack pick=1; consume count=10 prefetch=3 ack=2; publish_many size=900; consume count=10 prefetch=20; nack; nack; "
        "2 x consume count=10 prefetch=20; publish_many count=20 size=900; settle; crash; 3 x consume count=10 prefetch=20; publish wait=1",
        "priorities": "publish to=p; publish to=p priority=2; 2 x publish to=p priority=1; publish to=p priority=2 size=900; settle; get queue=p; ack; "
        "get queue=p; nack; get queue=p; publish to=p priority=1 wait=1; get queue=p; ack; sleep ms=2000; crash; get queue=p; ack; "
        "publish to=p wait=1; publish to=p priority=1 wait=1; restart; consume queue=p count=3; crash; consume queue=p count=10",
        "purge": "publish_many; publish_many size=900; settle; get; purge; nack; get; publish wait=1; purge; publish wait=1; restart; get",
        "requeue": "publish_many; publish_many size=900; settle; 5 x get; nack; nack pick=2; nack pick=1; get; ack; 3 x get; nack pick=1; reject; restart; 2 x get; ack; "
        "nack; restart; get; get; kill; 2 x get; reject pick=1; crash cut=0; get; ack; publish wait=1; restart; consume count=10",
        "revived": "3 x publish_many to=all size=900; consume count=10 prefetch=20; kill; consume queue=b count=10; kill victim=b; sleep ms=16000; "
        "publish_many to=all size=900; consume count=10; kill victim=b; sleep ms=16000; settle; crash; consume queue=b count=10",
        "shared": "publish to=all size=900; publish_many to=all size=900; publish to=all; settle; consume count=3; get queue=b; ack; publish to=all size=900 "
        "wait=1; crash; get; ack; publish to=a wait=1; get queue=b; restart; publish to=all wait=1; consume count=10; publish wait=1; crash; "
        "consume queue=b count=10; publish to=all size=1500 wait=1; restart; publish to=all wait=1; crash",
        "stop": "publish_many; publish_many size=900; settle; consume count=3; restart; get; ack; restart settle=0; publish wait=1; get; ack; purge; "
        "restart settle=0; publish_many count=20 size=900; 2 x publish; consume count=3; restart settle=0; burst count=8 size=900; 3 x get; ack; nack; "
        "restart settle=0; publish_many size=900; crash; consume count=10; restart settle=0; publish size=900 wait=1; crash; consume count=10",
        "transient": "publish; publish persistent=0; publish wait=1; publish persistent=0 size=900 wait=1; 2 x publish persistent=0; publish size=900; settle; "
        "get; crash cut=0; publish persistent=0; 12 x publish persistent=0 size=900; publish wait=1; restart; publish persistent=0 wait=1; get; kill; "
        "publish wait=1; crash; crash; get",
        "ttl": "publish to=t wait=1; sleep ms=30; get queue=t; publish to=t wait=1; sleep ms=16000; get queue=t; publish to=t wait=1; get queue=t; nack; "
        "sleep ms=300; restart; get queue=t",
        "channel_ends": "publish_many count=20; settle; 3 x get via=amqp; ack multiple=1; 3 x get via=amqp; hang_up; "
        "consume count=10 prefetch=20 via=amqp; publish_many; settle; 3 x get via=amqp; ack; ack; hang_up how=connection; "
        "consume count=10 prefetch=20 ack=2 via=amqp; hang_up; consume count=10 prefetch=20 via=amqp; hang_up how=socket; publish wait=1; "
        "consume count=10",
        "channels": "publish to=all via=amqp; publish to=a.b via=amqp; publish_many to=all via=amqp; publish to=a.x via=amqp; settle; "
        "wire which=fans_p; wire which=fans_x; send to=fans via=amqp; send to=tops via=amqp; unwire which=fans_p; unwire which=fans_x; "
        "send to=fans via=amqp; settle; consume count=10; consume queue=b count=10; delete; publish via=amqp; publish to=a.x via=amqp; "
        "settle",
        "brief": "brief count=3; brief count=1 ack=0; own; own how=socket; own count=3 how=keep; brief count=3 prefetch=1; own; publish wait=1; "
        "restart; own; brief",
        "bytes": "policy is=bytes; publish size=900; publish size=900; settle; audit; publish_many size=150 count=20; settle; audit; "
        "4 x publish size=150; settle; audit; get; nack; audit",
        "dead_length": "policy is=dead_length; publish_many; publish_many; settle; sleep ms=300; audit; get queue=dead; consume queue=dead count=10; "
        "publish_many count=20; settle; sleep ms=300; audit; consume queue=dead count=10 prefetch=20",
        "dead_many": "8 x publish to=d; settle; consume queue=d count=10 prefetch=20 ack=3; 3 x reject; settle_many pick=2 how=reject; sleep ms=300; "
        "audit queue=d; consume queue=dead count=10; policy is=dead_length; publish_many count=20; settle; sleep ms=300; audit; "
        "consume queue=dead count=10 prefetch=20",
        "dead_ttl": "policy is=dead_ttl; publish_many; publish; settle; sleep ms=300; sleep ms=2000; audit; get queue=dead; audit queue=dead; "
        "consume queue=dead count=10; publish_many; settle; get; sleep ms=300; nack; sleep ms=300; audit; consume queue=dead count=10",
        "expiring": "publish to=t wait=1; expiring; publish; expiring; settle; sleep ms=300; 3 x get; expiring to=t; publish to=t; settle; "
        "sleep ms=30; get queue=t; sleep ms=16000; get queue=t; expiring; sleep ms=30; get; expiring to=b; sleep ms=16000; get queue=b; "
        "policy is=ttl; publish; expiring; publish; sleep ms=300; get; policy is=none; publish; sleep ms=300; get",
        "headers": "wire which=heads_a; wire which=heads_b; send to=heads headers=kind; send to=heads headers=both; send to=heads headers=none; "
        "settle; sleep ms=300; consume count=10; consume queue=b count=10",
        "limits": "policy is=length; 5 x publish; settle; audit; get; nack; publish; settle; audit; audit fill=1; get; publish_many; settle; nack; "
        "audit; sleep ms=300; get; restart; audit; consume count=10; policy is=none; publish_many count=5; settle; policy is=length; "
        "audit; get; audit",
        "many": "publish_many count=20; settle; consume count=10 prefetch=20 ack=3; settle_many pick=2; settle_many pick=1 how=nack; get; get; "
        "get; ack multiple=1 pick=1; consume count=10 prefetch=20 ack=2; settle_many pick=1 how=reject; settle_many pick=1; restart; "
        "consume count=10 prefetch=20; publish_many; 4 x get via=amqp; ack pick=2 multiple=1; hang_up; consume count=10",
        "refusing": "policy is=reject; 2 x publish; settle; audit fill=1; audit fill=1; settle; publish wait=1; publish_many count=5; settle; audit; get; publish_many count=5; "
        "settle; nack; audit; audit fill=1; consume count=10; audit fill=1; publish_many count=20; settle; audit",
        "returns": "publish to=l; publish to=l; settle; get queue=l; nack; get queue=l; nack; sleep ms=300; get queue=l; nack; get queue=l; nack; "
        "sleep ms=300; audit queue=l; get queue=dead; ack; publish to=l; settle; get queue=l; nack; restart; get queue=l; nack; "
        "sleep ms=300; get queue=dead; ack; get queue=l",
        "rivals": "rivals count=3 prefetch=1; rivals count=10 prefetch=3; rivals queue=s count=3; rivals queue=s count=10 prefetch=20; "
        "rivals queue=s count=10 prefetch=3 ack=2",
        "topics": "publish to=a.b; publish to=a.x; publish to=x.x; publish to=a.b wait=1; settle; consume count=10 prefetch=20; "
        "consume queue=b count=10 prefetch=20; wire which=tops_a; wire which=tops_b; wire which=tops_heads; wire which=heads_b; "
        "send to=tops key=a.b; send to=tops key=a; send to=tops key=a.x headers=both; send to=tops key=x.x headers=both; settle; "
        "sleep ms=300; consume count=10 prefetch=20; consume queue=b count=10 prefetch=20",
        "unbound": "wire which=tops_a; wire which=tops_b; wire which=hub_a; wire which=hub_tops; send to=hub key=a.b; send to=hub key=x.x; "
        "send to=tops key=a.b; settle; unwire which=tops_b; send to=tops key=a.b; settle; unwire which=hub_a; send to=hub key=a.b; settle; "
        "wire which=tops_b; send to=tops key=a.b; wire which=fans_p; wire which=fans_x; send to=fans; unwire which=fans_x; send to=fans; "
        "settle; restart; send to=tops key=a.b; send to=fans; send to=hub key=a.b; settle; consume count=10; consume queue=b count=10; "
        "consume queue=p count=10",
        "tx": "tx; tx commit=0; tx size=900; settle; consume count=3; tx to=all commit=0; tx to=all; settle; crash; consume count=10",
    }.items()
}  # fmt: skip
"""Workload -> its script: each brings about what its mutations need, in every order that a seed may choose."""
