"""Simulated runs: the same number gives the same run, a sound broker passes, and a broken one is caught."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from warrenmq.actors.queue.dead_letter import DeadLetterPublisher
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.actors.vhost.queue_declarations import QueueDeclarations
from warrenmq.actors.vhost.vhost import Vhost
from warrenmq.amqp.channel.transaction import Transaction
from warrenmq.broker.broker import Broker
from warrenmq.broker.consumer import Consumer
from warrenmq.broker.delivery import Delivery, Subscription
from warrenmq.broker.handles import QueueHandle
from warrenmq.cli import main
from warrenmq.cli.simulate import _tell
from warrenmq.message.properties import Properties
from warrenmq.queue.drops import QueueDrops
from warrenmq.queue.queue_expiry import QueueExpiry
from warrenmq.queue.returns import Returns
from warrenmq.routing.router import Router
from warrenmq.simulate.fleet import Plan, first_task, fleet, here, script_of
from warrenmq.simulate.generate import SIZES, generate
from warrenmq.simulate.run import PROFILES, is_untraced, run, run_traced, run_untraced, settings_of
from warrenmq.simulate.script import FAULTS, HONEST_FAULTS, VERBS, parse
from warrenmq.testing import SimulatedMachine
from warrenmq.testing.disk import SimulatedFile

RUNS = 12


@pytest.mark.parametrize("profile", PROFILES)
def test_the_same_seed_gives_the_same_run(profile):
    script = generate(Random(5), HONEST_FAULTS)
    first, again, other = run(7, script, profile), run(7, script, profile), run(8, script, profile)
    assert first == again
    assert first.digest != other.digest


@pytest.mark.parametrize("seed", [3, 9, 18])
def test_rows_kept_as_they_are_say_the_same_as_the_files_of_a_trace(seed):
    script, profile = generate(Random(seed), FAULTS), PROFILES[seed % 2]
    assert run(seed, script, profile) == run_traced(seed, script, profile)[0]


def test_random_scripts_with_every_fault_break_no_promise():
    for progress in fleet(Plan(range(RUNS), FAULTS), here):
        assert [each for each in progress.outcomes if each.verdict != "ok"] == []
        assert progress.runs == RUNS
        assert len(progress.covered) > 200


def test_every_verb_can_be_done():
    for number, (verb, each) in enumerate(VERBS.items()):
        choices = [" ".join(f"{name}={value.choices[-1]}" for name, value in each.arguments.items())]
        script = parse(f"publish wait=1\nget\n{verb} {choices[0]}\npublish to=all\nget")
        outcome = run(number, script, PROFILES[number % 2])
        assert (verb, outcome.text) == (verb, "")


FOUND = {
    "a reject that a killed queue had not read makes no dead letter": (
        "classic", 0, "publish to=d wait=1\nget queue=d\nreject\nkill victim=d",
    ),
    "a message that was put back is not acked with all older ones": ("classic", 930003306, "publish_many\nconsume ack=2\nnack\nsettle_many"),
    "a message whose row a kill cut off may have the sequence id of a transient one that is gone": (
        "modern", 4455,
        "publish to=all persistent=0\nkill\npublish\nburst to=all count=3\npublish_many to=all\nkill victim=queue_sup",
    ),
    "a message that is still being sent when its broker is closed may be gone": (
        "classic", 60206114,
        "consume queue=d count=1 prefetch=20 ack=2\nnack pick=5\nburst to=all count=8 size=90\nslow ms=500 operation=2\n"
        "burst to=d count=8 size=150 persistent=0\nburst to=all count=8 size=90\nslow ms=500 operation=2",
    ),
    "a segment file for which a full disk has no room is no damage": (
        "classic", 60223402,
        "publish to=a.x size=901 wait=1 via=amqp\nrestart settle=0\nkill victim=msg_store_transient how=sync\n"
        "burst to=a.b count=3 size=150\nfull room=100\nget queue=t via=amqp\ncrash cut=0",
    ),
    "a queue drops nothing as long as its vhost is being recovered": (
        "classic", 202696,
        "policy queue=b\npublish to=x.x size=103\nget\nburst to=x.x count=1\nget queue=d\nconsume queue=b prefetch=1 ack=2\n"
        "publish to=x.x\npublish to=a.b size=121\npublish to=t\nkill victim=queue_sup how=sync",
    ),
    "a queue that was starting when the machine lost its power is no broker that crashed until it was down": (
        "modern", 503, "publish persistent=0\nburst to=d\ncrash_at operation=13\nkill victim=msg_store_persistent",
    ),
    "a queue that cannot fall asleep on a full disk gives no sequence id again": (
        "modern", 527, "publish_many size=103\npublish to=p\nslow ms=5\npublish to=d\nfull\nget queue=d\nack\nconsume queue=p",
    ),
    "a combine that has nothing to move is no garbage": (
        "modern", 13, "publish to=all size=0\npublish to=p size=90\npublish size=900\npublish to=t size=1500\nrestart profile=classic\n"
        "publish to=p size=90\nsleep ms=16000\npublish to=all size=900\ntx to=all size=900",
    ),
    "the dead letter of a transient message is transient": (
        "classic", 18, "publish to=d persistent=0 priority=2 wait=1\nget queue=d\nreject\nsleep ms=300\nrestart",
    ),
    "a file is left for its garbage before it is full": (
        "classic", 158, "publish to=t size=1500 persistent=0\nsleep ms=16000\npublish to=all size=1500 persistent=0\nsettle",
    ),
    "a queue that is deleted takes unacked messages along": (
        "modern", 33, "publish to=d wait=1\nget queue=d\ndelete queue=d\npublish to=d wait=1\nget queue=d",
    ),
    "a queue whose declare was cut off has no other arguments later": (
        "classic", 112, "publish to=d\ncrash_at operation=55 cut=0\nget queue=d\npublish to=p size=1500\nrestart\npublish to=p",
    ),
    "a queue whose definition was torn in its declare is no damage": (
        "classic", 2268, "crash_at operation=34\nget queue=p\npublish to=p",
    ),
    "a flipped bit in the message id of a record is told": (
        "modern", 1037, "publish size=103 wait=1\nflip bit=77\nget",
    ),
    "a priority queue that was cut off while it stopped crashed in all its priorities": (
        "modern", 337, "publish to=p\npublish\ncrash_at operation=19\nkill victim=vhost_process",
    ),
    "what is published while a queue's process is killed may reach the next one": (
        "modern", 439, "burst to=all\nget queue=dead\nkill\nkill",
    ),
    "a queue is declared again before its supervisor hears that the deleted one ended": (
        "modern", 1259, "publish to=all\nrestart profile=classic\nsleep ms=16000\npublish_many to=d count=20\npublish wait=1\n"
        "publish wait=1\ndelete queue=p\nburst to=p",
    ),
    "a message that only a restart of its queue has shown is not confirmed by that": (
        "modern", 451, "burst to=b size=103\nget queue=b\nkill victim=b\ncrash",
    ),
    "a purge that was cut off may have been done": (
        "modern", 587, "publish\npublish to=t\ncrash_at\npublish\npurge",
    ),
    "a deletion that was cut off takes confirmed messages along": (
        "classic", 234, "publish wait=1\ncrash_at operation=2\ndelete\nconsume",
    ),
    "a delivered message whose expiry was not on disk comes back, too": (
        "classic", 1100, "publish_many to=t\nget queue=b\nconsume queue=t ack=3\ncrash\npublish\nkill victim=vhost_sup",
    ),
    "messages that were collected from several publishes do not wait for each other's bodies": (
        "classic", 1070, "get queue=p\nkill victim=vhost_sup\nburst to=p count=8 size=1500\npublish to=p size=1500\n"
        "publish to=p persistent=0 wait=1\nkill victim=vhost_process",
    ),
    "a message whose expiry was not on disk comes back once more": (
        "classic", 806, "purge queue=dead\nget queue=d\nconsume queue=p\ntx to=t\nget queue=b\npublish to=t persistent=0\npublish\n"
        "publish to=p size=121\nfull\nconsume queue=dead\nrestart\nkill victim=queue_sup",
    ),
    "a queue that wakes while its virtual host is restarted is woken again": (
        "classic", 20886, "get\npublish_many to=all via=amqp\nkill victim=vhost_sup",
    ),
    "a priority that is empty while others are not is no damage when its queue has slept": (
        "modern", 1, "publish_many to=p count=2\npublish to=p priority=1 wait=1\nget queue=p\nack\nsleep ms=16000\nget queue=p",
    ),
    "a queue that is declared again does not have its predecessor's messages after a power cut": (
        "modern", 21115, "publish_many to=x.x count=12 size=150\ndelete queue=b\ncrash_at\npublish to=a.x",
    ),
    "messages that came while a queue was purged may be gone": (
        "modern", 24715, "publish to=p size=103\nconsume\nburst to=p\nslow\npurge queue=p",
    ),
    "a delayed message that came twice comes back once": (
        "classic", 25524, "later to=p ms=165\nsleep ms=165\npublish to=p\nkill victim=vhost_sup\nconsume queue=p ack=3",
    ),
    "a queue's next process goes by the policies that were set since the first": (
        "classic", 31636, "publish to=b\npolicy queue=b\npublish to=b via=amqp\npublish_many to=b via=amqp\nkill victim=b",
    ),
    "a delayed message goes to the alternate exchange if its queue was deleted": (
        "classic", 32050, "later to=a.x\ndelete",
    ),
    "a queue that is killed while it falls asleep is woken when it is used": (
        "classic", 31698, "publish to=p persistent=0\npublish to=a.x size=121\nslow\nsettle\npublish to=p wait=1\nkill",
    ),
    "a transaction that is sent to a full queue is nacked": ("modern", 23289, "policy is=reject\npublish\ntx"),
    "what was on its way over AMQP may reach the next process of a queue": (
        "classic", 23168, "publish to=a.b via=amqp\npublish to=b persistent=0 via=amqp\nget queue=b\nkill victim=b",
    ),
    "a successor's confirm proves nothing of an ack that its predecessor had": (
        "classic", 100182, "get\nsleep ms=16000\npublish size=150\nburst count=4\nconsume ack=3\npublish persistent=0\nack\nburst\nget\nkill",
    ),
    "a deletion is believed though the declaration after it was torn": (
        "classic", 6, "get queue=dead\ndelete queue=dead\ncrash_at operation=2\nburst",
    ),
    "a queue that cannot be woken on a full disk is no broker that crashed until it was down": (
        "classic", 2, "publish_many to=b count=20\npublish to=b\nconsume\nfull\npublish to=b",
    ),
    "a delayed message lives from when it comes, not from when it is confirmed": (
        "classic", 2, "later to=t\npublish\nfull\nsettle\nsleep ms=2000\nsleep ms=63\nrestart\nget queue=t",
    ),
    "a fan-out reaches the other queues when one is deleted under it": ("modern", 0, "burst to=all\ndelete"),
    "what is on its way over AMQP goes to the alternate exchange if its queue is deleted": (
        "classic", 0, "publish to=a.x via=amqp\ndelete",
    ),
    "what is on its way over AMQP may reach the queue that is declared again": (
        "modern", 5, "publish to=a.x\npublish_many to=b via=amqp\ndelete queue=b\npublish to=b",
    ),
    "what is on its way over AMQP may reach the declared queue of a dead-lettering one": (
        "classic", 0, "delete queue=d\npublish via=amqp\npublish to=d via=amqp\ndelete queue=d\nget queue=d",
    ),
    "what is on its way over AMQP may reach queues that a transaction declares again": (
        "modern", 2, "publish to=a.x via=amqp\npublish_many to=b via=amqp\ndelete queue=b\nkill victim=vhost_sup\ntx to=all",
    ),
    "messages whose bodies a power cut took are told of by a queue that stops": (
        "modern", 24, "publish via=amqp\npublish_many to=x.x\npublish\npublish_many to=all count=20 size=0\npurge queue=b\n"
        "crash_at operation=5\nget queue=p",
    ),
    "a message that was sent while its queue got a time to live may have none": (
        "modern", 4933, "publish to=a.b\nburst to=a.b\npolicy queue=b is=ttl\nsleep ms=4022\nconsume queue=b",
    ),
    "an ack that a channel has not handled is lost with the socket": (
        "classic", 6000126, "publish_many to=d count=20 size=150 via=amqp\nhang_up how=socket\npublish to=d size=150\ncrash_at operation=21\n"
        "slow ms=38\nget queue=dead\nget queue=d via=amqp\nack\nhang_up how=socket",
    ),
    "what a killed store's queues were sent over AMQP later is not made safe by their recovery": (
        "modern", 405201, "publish to=all size=103 via=amqp\nkill victim=msg_store_persistent\ncrash",
    ),
    "a dead letter that was on its way when its queue was killed may be gone": (
        "classic", 403006, "publish_many to=d via=amqp\nget queue=d via=amqp\nreject\nkill victim=queue_sup",
    ),
    "a queue whose binding was cut off may be bound": (
        "modern", 403265, "get queue=b\ncrash_at operation=8 cut=0\npublish to=all size=1500 priority=1 wait=1\nsettle\npublish_many to=all count=2",
    ),
    "an alarm holds up no queue that is to meet an error of its disk": ("classic", 1264, "publish\npressure\nsleep ms=15000\nkill how=error"),
    "a queue that cannot write in passing goes on": (
        "modern", 370845, "publish_many to=a.x\npublish to=a.x persistent=0\npublish_many to=a.x count=20 size=0\npublish to=a.x persistent=0 wait=1\n"
        "publish_many to=a.x count=20 size=0\nkill how=error\npublish to=d",
    ),
    "a policy that a full disk refuses is not in force": ("modern", 0, "publish_many\nfull room=25\npolicy\npolicy queue=b"),
    "a publish that a second thread is sending while all others are settled may be nacked by a process that was killed": (
        "classic", 200490, "publish to=all size=150 wait=1\nburst to=all\nkill victim=vhost_sup\nsettle",
    ),
    "a publish that waits for unlike ones to be taken in is nacked when its queue is killed meanwhile": (
        "modern", 777027793, "sleep ms=15000\npublish to=all size=1500 via=amqp\nsettle\npublish to=x.x persistent=0 wait=1 via=amqp\nget queue=p\n"
        "publish to=p size=455 via=amqp\nburst count=8 size=899\nsleep ms=2000\nsleep ms=70000\nsleep ms=14800\nget queue=d via=amqp\npolicy\n"
        "get queue=b via=amqp\npublish persistent=0 priority=1 via=amqp\npublish_many to=a.x size=899\nkill victim=vhost_sup how=sync",
    ),
    "a broker whose commit log has failed may go down before the harness ends it": (
        "classic", 914030294, "publish to=all wait=1\nslow\nkill how=error",
    ),
    "what a sync of the commit log that failed may have left there is not written over a newer journal": (
        "classic", 2246, "policy queue=b is=ttl\npublish_many to=x.x count=12\npublish to=x.x via=amqp\npublish\nkill victim=b how=error",
    ),
    "a store that was stopped before it heard of a deletion gives up what the deleted queue held at its next start": (
        "classic", 10013248, "publish_many to=t count=20 size=1500\npublish to=t\ndelete queue=t\nkill victim=queue_sup",
    ),
    "an ack that the process of a queue which was killed sent in vain is no damage": (
        "classic", 0, "publish_many to=a count=20 size=1500\nsettle\npurge queue=a\nkill victim=queue_sup",
    ),
    "folders of priorities that a crash left unmade are no damage": ("modern", 20011139, "crash_at cut=0\npublish to=p"),
    "a message that two queues hold may be in the store before an older one of theirs": (
        "modern", 10035135, "get via=amqp\nsleep ms=70000\nget via=amqp\nsleep ms=70000\nburst to=all\nkill victim=vhost_sup\n"
        "kill victim=msg_store_persistent\nget\nkill victim=vhost_sup\nkill victim=msg_store_persistent\nburst to=all size=150\n"
        "kill victim=vhost_sup\nkill victim=msg_store_persistent",
    ),
    "a message of a fan-out is no proof of what its queue sent before, also if that queue alone has it now": (
        "modern", 20035893, "policy\npublish_many to=all count=8 size=900\npublish_many\nkill victim=msg_store_persistent",
    ),
    "a delayed message that comes again after a crash counts once more for a queue's length": (
        "classic", 8712, "burst\npolicy\nlater ms=1\ntx count=1\ncrash",
    ),
    "the end of a publish that a power cut tore off a journal is no ack": (
        "classic", 8712, "publish to=d wait=1\nburst to=all count=3\npublish to=d wait=1\nburst count=8 size=900 persistent=0\n"
        "policy\nlater to=all size=91 ms=1\ntx to=d count=1 size=121\ncrash",
    ),
    "a delayed message that came twice may have come back too often": (
        "classic", 20021162, "later to=l ms=300\ntake how=consume\nrivals\ntake queue=l\nlinger queue=l victim=queue_sup",
    ),
    "a channel that ends while it waits for credit blocks no other": (
        "modern", 913000317, "publish_many to=d count=20 size=150 via=amqp\npublish to=d size=899 via=amqp\nhang_up\npublish to=d via=amqp\nget queue=d via=amqp",
    ),
    "a message that comes while its queue is asked for its length is there before its consumers": (
        "modern", 1802199, "burst to=e count=1\nrivals queue=e count=2",
    ),
    "a slow disk has time to deliver what an auto-delete queue holds": (
        "modern", 1906903, "slow ms=106 of=reader\nbrief",
    ),
    "garbage that a full disk let be written only at last is not left over from a quiet minute": (
        "modern", 1704497, "full room=125\npublish to=e size=103\nsleep ms=70000",
    ),
}  # fmt: skip
"""Runs that have found faults: profile, seed and script."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_mended(name):
    profile, first, text = FOUND[name]
    for seed in (first, 0, 1):
        assert run(seed, parse(text), profile).text == ""


@pytest.mark.parametrize(
    "name",
    [
        "a queue drops nothing as long as its vhost is being recovered",
        "messages whose bodies a power cut took are told of by a queue that stops",
    ],
)
def test_what_was_found_in_a_run_without_a_trace_is_mended(name):
    profile, seed, text = FOUND[name]
    assert run_untraced(seed, parse(text), profile).text == ""


def test_brokers_of_every_kind_run_without_a_trace():
    kinds = {
        (seed % 2, settings_of(seed)[PROFILES[0]].commit_log) for seed in range(256) if is_untraced(seed)
    }
    assert len(kinds) == 4


def find(faults, most=120):
    """The first problem that so many random scripts find."""
    for seed in range(most):
        outcome = run(seed, generate(Random(seed), faults), PROFILES[seed % 2])
        if outcome.verdict != "ok":
            return outcome.problem
    return ""


def test_syncs_that_do_nothing_are_found(monkeypatch):
    monkeypatch.setattr(SimulatedFile, "datasync", lambda self: None)
    assert find(("crash",)) in ("lost", "queue lost", "C2")


def test_a_wrong_redelivered_flag_is_found(monkeypatch):
    monkeypatch.setattr(Delivery, "redelivered", property(lambda self: False))
    assert find(()) == "redelivered flag"


def test_an_ack_of_another_message_is_found(monkeypatch):
    settle = Subscription.settle

    def settle_first(self, tag, message):
        settle(self, tag, message._replace(tag=max(1, tag - 1)))

    monkeypatch.setattr(Subscription, "settle", settle_first)
    assert find(())


def peek_all_but_the_first(queue, n=1, peek=QueueHandle.peek):
    return peek(queue, n)[1:]


def peek_in_the_middle(queue, n=1, peek=QueueHandle.peek):
    return peek(queue, n + 1)[1:]


def peek_twice(queue, n=1, peek=QueueHandle.peek):
    return peek(queue, n) * 2


def consume_without_priority(
    queue, prefetch=250, *, exclusive=False, priority=0, consume=QueueHandle.consume
):
    return consume(queue, prefetch, exclusive=exclusive)


def delete_whatever_it_is(broker, name, *, delete=Broker.delete_queue, **_conditions):
    return delete(broker, name)


def drop_one_too_many(drops, count, reason, now=0, drop_head=QueueDrops.drop_head):
    drop_head(drops, count + 1, reason, now)


def subscribe_again_for_one(consumer, timeout=None, subscribe=Consumer._subscribe):
    if hasattr(consumer, "_subscription"):
        consumer._prefetch = 1
    return subscribe(consumer, timeout)


def do_nothing(*_args, **_options):
    return None


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "script", "problem"),
    [
        (Returns, "came_back", lambda _self, _seqs: [], "publish to=l\nget queue=l\nnack\nget queue=l\nnack\nget queue=l", "delivery limit"),
        (QueueHandle, "peek", peek_all_but_the_first, "publish\npeek", "missing"),
        (QueueHandle, "peek", peek_in_the_middle, "publish\npublish\npeek n=1", "order"),
        (QueueHandle, "peek", peek_twice, "publish\npeek n=1", "peeked"),
        (Delivery, "properties", Properties(), "publish priority=1\nget", "altered"),
        (Delivery, "properties", Properties(), "publish persistent=0\nget", "altered"),
        (Delivery, "properties", Properties(), "wire which=fans_p\nsend to=fans headers=kind\nget queue=p", "altered"),
        (Consumer, "get", do_nothing, "publish\ntake how=consume", "starved"),
        (Confirm, "confirm", lambda self: self.nack("for no reason"), "publish\nsleep", "Nacked"),
        (Delivery, "retry", lambda self, _delay: self.ack(), "publish wait=1\nget\nretry", "lost"),
        (Transaction, "settle", lambda *_args, **_options: None, "publish wait=1\nchannel_tx to=b", "came back"),
        (Router, "unbind", do_nothing, "wire\nwire which=fans_p\nunwire which=fans_p\nsend to=fans", "still routed"),
        (Router, "unbind", do_nothing, "wire which=fans_p\nunwire which=fans_p\nsend to=fans beside=1\nsettle", "came from nowhere"),
        (QueueHandle, "consume", consume_without_priority, "rivals", "priority"),
        (Consumer, "_subscribe", subscribe_again_for_one, "linger", "starved"),
        (Broker, "delete_queue", delete_whatever_it_is, "publish wait=1\ndelete_if", "not empty"),
        (Broker, "delete_queue", delete_whatever_it_is, "delete_if how=used", "in use"),
        (QueueExpiry, "timer_came", do_nothing, "publish to=e\nsleep ms=14800\nget queue=e", "not expired"),
        (Vhost, "check_exclusive_access", do_nothing, "own", "exclusive"),
        (QueueDeclarations, "may_go", do_nothing, "brief", "not deleted"),
        (QueueDrops, "drop_head", drop_one_too_many, "policy\npublish_many\nget", "order"),
        (QueueDrops, "drop_head", drop_one_too_many, "policy is=bytes\npublish_many count=20 size=150\naudit", "count"),
        (DeadLetterPublisher, "publish", do_nothing, "policy is=dead_length\npublish_many\naudit", "dead letters"),
        (DeadLetterPublisher, "publish", do_nothing, "publish to=l\nget queue=l\nnack\nget queue=l\nnack\naudit queue=l", "dead letters"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_step_of_wide_scripts_is_found(monkeypatch, owner, name, wrong, script, problem):
    assert run(1, parse(script), "modern").text == ""
    monkeypatch.setattr(owner, name, wrong)
    assert run(1, parse(script), "modern").problem == problem


def test_a_loss_that_stats_do_not_name_is_found(monkeypatch):
    """Damage may cost messages, but not in silence."""
    monkeypatch.setattr(Broker, "stats", lambda self, stats=Broker.stats: replace(stats(self), damage=()))
    assert find(("flip",)) == "lost without a word"


def test_a_message_whose_row_a_kill_cut_off_is_held_by_the_queue_that_recovers_it():
    script = parse(
        "get queue=t\nburst to=all count=6 size=121\npublish to=b\npublish_many\nget\ncrash_at operation=13 cut=0\npublish wait=1\n"
    )
    outcome = run(87, script, "modern")
    assert outcome.verdict == "ok", outcome.text


def test_each_task_is_a_client_of_its_own():
    """A publish of one task is no part of a transaction that another one has open."""
    with SimulatedMachine(3) as machine:
        broker = machine.open()
        jobs = broker.declare_queue("jobs")
        with broker.tx():
            jobs.publish(b"mine")
            machine.sim.spawn(lambda: jobs.publish(b"another's"))
            machine.sleep(1)
            assert jobs.get().body == b"another's"


def test_a_run_without_a_trace_is_done_again_without_one(capsys, tmp_path):
    """With a trace things happen in another order."""
    arguments = ["simulate", "--seed", "8", "--faults", "none"]
    assert main([*arguments, "--trace", str(tmp_path / "trace")]) == 0
    *_, how, verdict, traced = capsys.readouterr().out.splitlines()
    assert "without a trace" in how
    assert verdict == "ok: all promises held"
    assert traced.startswith("with the trace")
    assert list((tmp_path / "trace").iterdir())


def test_a_fleet_that_is_interrupted_says_what_it_found_so_far(capsys, monkeypatch):
    def interrupted(plan, _workers):
        for number, progress in enumerate(fleet(replace(plan, seeds=range(4)), here)):
            progress.outcomes[0] = replace(
                progress.outcomes[0], verdict="violated", problem="loss", text=f"lost {number}"
            )
            progress.failed = 1
            yield progress
        raise KeyboardInterrupt

    monkeypatch.setattr("warrenmq.simulate.fleet.fleet", interrupted)
    monkeypatch.setattr("warrenmq.cli.simulate._REPORT_EVERY", 0.0)
    monkeypatch.setattr("warrenmq.cli.simulate._tell", lambda outcome: print("told", outcome.text))
    assert main(["simulate", "--runs", "1000", "--cores", "1"]) == 130
    said = capsys.readouterr()
    assert said.err.splitlines()[0] == "failed: seed 0, profile classic: lost 0"
    *script, progress = said.err.splitlines()[1:]
    assert parse("\n".join(script)) == script_of(first_task(Plan(range(1)), 0))
    assert progress.startswith("4 of 1,000 runs, ")
    assert said.out.splitlines()[0].startswith("4 runs, ")
    assert said.out.splitlines()[1:] == ["told lost 0", "1 failed"]


@pytest.mark.parametrize(
    ("script", "said"),
    [(b"", "has no step"), (b"# none\n", "has no step"), (b"\xff", "is no script: it is no text")],
)
def test_a_file_without_a_script_is_one_sentence(tmp_path, capsys, script, said):
    (tmp_path / "script.txt").write_bytes(script)
    assert main(["simulate", "--seed", "1", "--script", str(tmp_path / "script.txt")]) == 2
    assert said in capsys.readouterr().err


def test_a_seed_writes_no_table(tmp_path, capsys):
    assert main(["simulate", "--seed", "1", "--out", str(tmp_path / "runs")]) == 2
    assert "--seed is one" in capsys.readouterr().err


def test_a_failure_is_told_as_the_smallest_script_has_it(capsys, monkeypatch):
    monkeypatch.setattr(QueueHandle, "peek", peek_twice)
    script = "publish to=b\npublish_many to=b\nget queue=b\npublish\npeek n=1"
    _tell(run(1, parse(script), "modern"))
    told = capsys.readouterr().out
    assert "queue a shows messages [1] more than once" in told


@pytest.mark.parametrize("size", SIZES)
def test_a_seed_alone_gives_the_run_that_it_gave_in_a_fleet(capsys, size):
    plan = Plan(range(4), size=size)
    for outcome in [outcome for progress in fleet(plan, here) for outcome in progress.outcomes]:
        assert main(["simulate", "--seed", str(outcome.seed), "--size", size]) == 0
        *script, digest, verdict = capsys.readouterr().out.splitlines()
        assert "\n".join(script) == outcome.script
        assert digest.endswith(f"digest {outcome.digest}")
        assert verdict == "ok: all promises held"
