"""The process of one queue (rabbit_amqqueue_process): receives messages, and carries out the effects of the queue's state.

    mail, calls, timers ──► QueueState (warrenmq/queue/state.py) ──► effects ──► consumers, publishers, stores, timers, monitors

The decisions are in the state; here are recovery before the first message, timers, monitors, sends, and the
end.  Promises outlive the process: publishers without an answer get a nack however it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, ClassVar

from pykka import ActorRef

from warrenmq.actors.node.memory_monitor import RABBIT_MEMORY_MONITOR, ReportRamDuration
from warrenmq.actors.queue.dead_letter import DeadLetterPublisher
from warrenmq.actors.queue.priorities import PRIORITIES
from warrenmq.actors.queue.recovery import QueueSpec, recover, tell_found
from warrenmq.actors.queue.release import Releases, delay_of
from warrenmq.actors.sending.message_sender import Flow
from warrenmq.actors.store.client import BumpCredit, MsgStoreClient
from warrenmq.directory.recovery_terms import Terms, discard_terms, save_terms
from warrenmq.errors import Blocked
from warrenmq.log import Log
from warrenmq.message.queue_message import Publication
from warrenmq.queue.collected import OpenAcks, OpenPublish
from warrenmq.queue.drain import unwritten
from warrenmq.queue.effects import (
    AskForRoom,
    CancelLateConsumer,
    CancelTimer,
    CastStore,
    DeadLetter,
    DeleteUnused,
    Deliver,
    Demonitor,
    GrantCredit,
    LastConsumerGone,
    Monitor,
    Refuse,
    RefuseCall,
    Release,
    Reply,
    ReportDuration,
    ResumeQueues,
    SendAfter,
    Settle,
    StartTimer,
)
from warrenmq.queue.messages import (
    DELETED,
    ENDED,
    Ack,
    Acks,
    AckUpTo,
    Answered,
    Cancel,
    ChannelClosed,
    Consume,
    CountBytes,
    Delete,
    Drain,
    Forward,
    Forwarded,
    Get,
    Info,
    ListConsumers,
    LookIdle,
    MakeRoom,
    MsgsOnDisk,
    NewArguments,
    Peek,
    Publish,
    Purge,
    Resume,
    Stat,
    Taken,
)
from warrenmq.queue.setting import QueueSetting
from warrenmq.queue.state import WAITS, QueueState
from warrenmq.queue.trace import QueueTrace
from warrenmq.queue.unconfirmed import Promise
from warrenmq.runtime import NO_REPLY, Down, From, Server, Stop, Timer
from warrenmq.runtime.closable import ALIVE
from warrenmq.runtime.life import inbox_of
from warrenmq.runtime.reasons import NORMAL, SHUTDOWN, Killed
from warrenmq.runtime.shortage import may_pass
from warrenmq.seams.disk_errors import is_full, is_short_of_descriptors, lack_of
from warrenmq.seams.fenced_disk import FencedDisk
from warrenmq.trace.events import Nacks, Trigger
from warrenmq.trace.writers import writer

_write_nacked = writer(Nacks)


_ACKS = frozenset({Ack, AckUpTo, Acks, OpenAcks, Taken})
"""The messages of consumers whose senders wait for nothing."""
_QUESTIONS = frozenset({Info, ListConsumers})
"""Calls of those who watch the broker: a queue that only these look at is not in use."""
ASLEEP = (SHUTDOWN, "asleep")
"""The reason of a process that ends because its queue sleeps."""


def why_ended(reason: object) -> str:
    """The nack text for publishers of a queue process that ended for this reason."""
    return DELETED if reason == NORMAL else ENDED


class QueueProcess(Server):
    """The process around one QueueState.

    spec               name, directories, stores, settings
    _state             the queue; its effects are carried out after each message
    _persistent        the queue's end of the persistent message store
    _transient         the same of the transient one
    _dead_letters      publishes copies to the dead-letter exchange
    _releases          publishes delayed messages whose time has come
    _timers            those that run, by the class of their message
    _channel_monitors  those that are watched
    _looks             a LookIdle is on its way, or none is wanted
    _used              something came since the last look that was more than a question
    _forwarded         queue -> publications that the vhost process still has to publish to it; not zero
    """

    helpable = True
    receives: ClassVar[frozenset[type]] = frozenset({Ack, AckUpTo, Acks, OpenAcks})
    ranks = PRIORITIES
    requests = frozenset({
        Get, Consume, Cancel, ChannelClosed, Purge, Delete, Drain, Stat, Info, ListConsumers, Peek, CountBytes, MakeRoom,
    })  # fmt: skip

    @staticmethod
    def undelivered(message: Any) -> None:
        """A publish that will never be handled is nacked."""
        if isinstance(message, OpenPublish):
            message = message.take()
        if isinstance(message, Publish):
            flow = message.publisher
            message.confirm.nack(why_ended(flow.inbox.reason if isinstance(flow, Flow) else None))

    def init(self, spec: QueueSpec) -> None:
        """Recover the queue's directory, all of it, before the first message is handled."""
        if (arguments := spec.arguments_now()) != spec.arguments:
            spec = replace(spec, arguments=arguments)
        self.spec = spec
        self.log = Log("warrenmq.queue", queue=spec.name)
        self._sleep_after = spec.settings.queue_sleep_after / 1000
        self._looks = not self._sleep_after
        self._used = True
        self._timers: dict[type, Timer] = {}
        self._channel_monitors: dict[ActorRef[Any], int] = {}
        self._forwarded: dict[str, int] = {}
        self._discarded: list[str] = []
        """Folders whose terms were removed, which is not safe yet."""
        self._recover()
        self.actor_inbox.on_close(self._nack_all)
        self._carry_out()

    def _recover(self) -> None:
        spec, runtime = self.spec, self.runtime
        self._disk = disk = FencedDisk(spec.disk, self.fence)
        cref, send = runtime.token_bytes, self.actor_inbox.send  # on_disk is called in the store's thread
        self._persistent = MsgStoreClient(
            self, spec.persistent_store, spec.name, cref(16), lambda ids, why: send(MsgsOnDisk(ids, why))
        )
        self._transient = MsgStoreClient(self, spec.transient_store, spec.name, cref(16), None)
        self._clients = {spec.persistent_store: self._persistent, spec.transient_store: self._transient}
        vq, found, clean = recover(
            spec, disk, self._persistent, self._transient, runtime.monotonic_ns, self.trace
        )
        self._dead_letters = DeadLetterPublisher(self, spec, self.log, self._forward)
        self._releases = Releases(self, spec, self.log, lambda: send(Answered()), self._forward)
        rows = (
            None if self.trace is None else QueueTrace(self.trace, lambda channel: inbox_of(channel).trace_id)
        )
        self._state = QueueState(vq, QueueSetting(
            name=spec.name, vhost=spec.vhost, ref=self.actor_ref, durable=spec.durable, arguments=spec.arguments,
            settings=spec.settings, disk=disk, directory=spec.directories[0], stores=self._clients,
            rooms=[client.room for client in self._clients.values()],
            has_dead_letter_exchange=lambda: self._dead_letters.exchange is not None,
            monotonic_ns=runtime.monotonic_ns, wall_ns=runtime.wall_ns, before=spec.before, found_expiring=found.expires, is_up=spec.is_up(), log=self.log,
            delay_of=delay_of, rows=rows,
        ))  # fmt: skip
        self._effects = self._state.effects
        if self.actor_inbox.reason is not ALIVE:
            raise Killed  # the figures are its successor's
        if spec.tell_figures is not None:
            spec.tell_figures(self._state.figures)
        lost = self._state.begin()
        if rows is not None:
            live = vq.index.live_messages()
            rows.recovered(found, live, lost, spec.arguments, clean=clean, is_up=self._state.front.is_up)
        tell_found(spec, self.log, found, clean=clean)
        self._state.front.trim()

    def _forward(self, queue: str, publication: Publication, promise: Promise) -> bool:
        """Forward publishes for a sleeping queue to the vhost process; and as long as it has not done so, all that follow."""
        on_its_way = self._forwarded.get(queue, 0)
        if not on_its_way and not self.spec.sleeps(queue):
            return False
        if not self.cast(self.spec.vhost_process, Forward(queue, publication, promise, self.actor_ref)):
            return False
        self._forwarded[queue] = on_its_way + 1
        return True

    # -- messages that arrive

    def handle_cast(self, message: Any) -> None:
        """One message (see queue/messages.py)."""
        self._used = True
        if type(message) is OpenPublish and (message := message.take()) is None:
            return
        if type(message) is Publish:
            try:
                self._state.publish(message)
            except Exception:  # the process ends, and the message may stand nowhere yet
                message.confirm.nack(ENDED)
                raise
            # given up meanwhile: whoever did so may have looked for what to nack before it stood anywhere
            if self.actor_inbox.reason is not ALIVE:
                message.confirm.nack(ENDED)
        elif type(message) is OpenAcks:
            self._state.cast(message.take(), self.sender_id, self.sender_seq)
        elif type(message) is BumpCredit:
            self._clients[message.store].handle_bump(message.credit)
            self._state.store_granted(message.store)
        elif type(message) is Answered:
            self._state.answered(*self._releases.answers())
        elif type(message) is Forwarded:
            if left := self._forwarded.pop(message.queue) - 1:
                self._forwarded[message.queue] = left
        else:
            if type(message) is NewArguments:
                self.spec = replace(self.spec, arguments=message.arguments)
                self._dead_letters.set(message.arguments)
            self._state.cast(message, self.sender_id, self.sender_seq)
        if self._effects:
            self._carry_out()

    def handle_call(self, request: Any, sender: From) -> Any:
        """Answer one call."""
        if type(request) is Delete:
            return self._delete(request, sender)
        if type(request) is MakeRoom:
            self._sleep_if_unused()
            return False
        self._used = self._used or type(request) not in _QUESTIONS
        self._catch_up()
        answer = self._state.call(request, sender)
        self._carry_out()
        return NO_REPLY if answer is WAITS else answer

    def handle_info(self, message: Any) -> None:
        """The process's own timers, and the deaths of channels."""
        if type(message) is LookIdle:
            self._look_idle()
            return
        self._used = True
        self._catch_up()
        if isinstance(message, Down):
            if message.ref is not None:
                self._channel_monitors.pop(message.ref, None)
                self._state.channel_died(message.ref)
        else:
            self._state.info(message)
        self._carry_out()

    def mailbox_empty(self) -> None:
        """Deliver, send to the stores, and then sync."""
        if self._used and not self._looks:
            self._looks = True
            self._used = False
            self.send_after(self._sleep_after, LookIdle())
        self._state.mailbox_empty()
        if self._effects:
            self._carry_out()
        state = self._state
        if state.unconfirmed.unsynced and state.group_commit.pauses(sum(state.output.delivered)):
            self.runtime.pause()
            more = self.actor_inbox.has_mail()
            state.group_commit.paused(in_vain=not more)
            if more:
                return  # the mailbox will be empty once more
        if not self.suspend(state.begin_sync, self._make_safe):
            self._make_safe()

    def _make_safe(self) -> None:
        if self._discarded:
            self._make_discard_safe()
        self._state.make_safe()
        if self._effects:
            self._carry_out()

    def can_wait(self, kinds: AbstractSet[type]) -> bool:
        """Acks can, unless they make room for further deliveries, and so can an empty mailbox, unless
        somebody waits for it.
        """
        return kinds <= _ACKS and self._state.nobody_waits()

    def _catch_up(self) -> None:
        """Deliver what was put off: called before every message but publishes and acks."""
        self._state.catch_up()
        if self._effects:
            self._carry_out()

    # -- effects

    def _carry_out(self) -> None:
        """Carry out the state's effects; none of them changes the state, or leaves another effect."""
        for effect in self._effects:
            match effect:
                case Deliver():
                    # given up meanwhile: a successor may have taken the consumer on, and counts its deliveries anew
                    if self.actor_inbox.reason is ALIVE:
                        effect.outlet.put(effect.deliveries)
                case Settle():
                    for _, _, _, promise in effect.complete:
                        promise.confirm()
                case StartTimer():
                    if (timer := self._timers.get(type(effect.info))) is not None:
                        timer.cancel()
                    self._timers[type(effect.info)] = self.send_after(effect.seconds, effect.info)
                case CancelTimer():
                    if (timer := self._timers.pop(effect.kind, None)) is not None:
                        timer.cancel()
                case SendAfter():
                    self.send_after(effect.seconds, effect.info)
                case AskForRoom():
                    self.cast(self.spec.vhost_process, MakeRoom())
                case CastStore():
                    self._persistent.send()
                    self._transient.send()
                case GrantCredit():
                    effect.publisher.bump(effect.credit)
                case Refuse():
                    effect.promise.fail(effect.error)
                case Reply():
                    effect.sender.reply(effect.value)
                case RefuseCall():
                    effect.sender.refuse(effect.error)
                case DeadLetter():
                    self._dead_letters.publish(effect.stored, effect.reason)
                case Release():
                    self._releases.publish(effect.messages)
                case Monitor():
                    self._channel_monitors[effect.channel] = self.monitor(effect.channel)
                case Demonitor():
                    if (key := self._channel_monitors.pop(effect.channel, None)) is not None:
                        self.demonitor(key)
                case ResumeQueues():
                    for queue in effect.queues:
                        self.cast(queue, Resume(effect.channel))
                case CancelLateConsumer():
                    effect.holder.lapsed(effect.error)
                case ReportDuration():
                    self.cast(RABBIT_MEMORY_MONITOR, ReportRamDuration(self.actor_ref, effect.seconds))
                case DeleteUnused():
                    self.spec.unused_too_long()
                case LastConsumerGone():
                    if self.spec.last_consumer_gone is not None:
                        self.spec.last_consumer_gone()
        self._effects.clear()

    # -- sleep

    def _look_idle(self) -> None:
        """Sleep if nothing came since the last look."""
        if self._used:
            self._used = False
            self.send_after(self._sleep_after, LookIdle())
            return
        self._looks = False  # what is more than a question has another one come
        self._state.long_unused()
        self._sleep_if_unused()

    def _sleep_if_unused(self) -> None:
        """Sleep unless the process has messages, consumers or mail to serve."""
        vq = self._state.vq
        try:
            if (asleep := self._state.asleep()) is None:
                return  # until something comes that is more than a question
            self._used = True  # if it stays awake it looks again
            if self._forwarded or self.actor_inbox.length():
                return
            vq.index.sync(Trigger.CLOSE)
            if self.spec.durable:
                # while it can still stay awake: the disk may be full, or descriptors short
                self._save_terms(vq.terms(), self._rest())
        except OSError as error:
            self._discard_terms()
            if not may_pass(error):
                raise
            return
        if self.actor_inbox.close_empty(ASLEEP):
            # Noted first: however this ends, the queue can be woken.  The stores see the end by their
            # monitors, and hold nothing to drop.
            self.spec.falls_asleep(asleep)
            if self.spec.durable:
                vq.terminate()
            self._closed()
            raise Stop(ASLEEP)
        self._discard_terms()  # mail came meanwhile

    # -- the end

    def _delete(self, request: Delete, sender: From) -> Any:
        name, state = self.spec.name, self._state
        self._catch_up()
        request.check(name, self.spec.vhost, state.consumers.count, state.vq.ready)
        state.deleting()
        try:
            request.commit()
        except OSError as error:
            if not is_full(error):
                raise
            msg = f"{lack_of(error)}, so queue {name!r} was not deleted; make room and try again"
            raise Blocked(msg) from error
        ready = state.delete()
        self._effects.clear()
        for client in self._clients.values():
            client.delete()
        sender.reply(ready)
        raise Stop("normal")

    def terminate(self, reason: Any) -> None:
        """A clean stop leaves everything on disk, with terms that say so; anything else leaves the files to recovery."""
        self.spec.damage.ended(reason)
        if reason != "shutdown":
            return
        lack = self._state.index_sync.lack_now
        try:
            if not self._state.index_sync.is_full:
                self._stop_cleanly()
                return
        except OSError as error:
            if not is_full(error):
                raise
            lack = lack_of(error) or lack
        sentence = unwritten(lack, self.spec.name, self._state.unconfirmed.messages())
        self.log.warning(sentence)
        self.spec.unwritten(sentence)

    def _stop_cleanly(self) -> None:
        state = self._state
        state.take_in()
        vq = state.vq
        vq.drop_transient_pending()
        if not self.spec.durable:
            self._close_files()
            self._carry_out()
            self._persistent.delete()
        else:
            vq.index.sync(Trigger.CLOSE)
            state.confirm_synced()
            vq.index_synced()
            self._carry_out()
            self._persistent.terminate()
            self._close_files()
        self._transient.delete()

    def _close_files(self) -> None:
        """The end of a clean stop; everything is synced."""
        if self.spec.durable:
            rest = self._rest()  # it reads, and would open again what is closed
            terms = self._state.vq.terminate()
            try:
                self._save_terms(terms, rest)
            except OSError as error:
                if is_full(error) or not may_pass(error):
                    raise
                self.log.warning(
                    "the next start reads the queue's files, as after a crash: no terms were written",
                    error=str(error),
                )
        self._closed()

    def _closed(self) -> None:
        """The files are closed, those of a durable queue with their terms."""
        state, vq = self._state, self._state.vq
        state.drops.note_lost()  # a stop reads what it pages, and may find damage
        if not self.spec.durable:
            vq.index.delete()
        elif state.rows is not None:
            state.rows.closed(vq.ready + vq.unacked, vq.next_seq_id)

    def _rest(self) -> tuple[int, int | None] | None:
        """The messages of the queue, for a start that needs no process for them; None where it needs one."""
        # at each start a queue claims the references that a store holds for it, so that a trace of that run
        # has both ends of each
        return None if self._state.vq.uses_store else self._state.rest()

    def _save_terms(self, terms: Sequence[Terms], rest: tuple[int, int | None] | None) -> None:
        for directory, each in zip(self.spec.directories, terms, strict=True):
            save_terms(self._disk, directory, each._replace(asleep=rest))

    def _discard_terms(self) -> None:
        """The queue goes on, so that a crash must not find them."""
        if self.spec.durable:
            self._discarded += [each for each in self.spec.directories if discard_terms(self._disk, each)]
            self._make_discard_safe()

    def _make_discard_safe(self) -> None:
        """Sync the folders; while descriptors are short it is tried again before each sync of what comes."""
        try:
            self._disk.sync_many(self._discarded)
        except OSError as error:
            if not is_short_of_descriptors(error):
                raise
        else:
            self._discarded = []

    def _nack_all(self, reason: object) -> None:
        """The process is dead: called in the thread that found it so."""
        if reason is ASLEEP:
            del self._state  # the process may be referred to for long, by who published to it
            return
        nacked = self._state.nack_all(why_ended(reason))
        if nacked and self.trace is not None and (recorder := self.runtime.recorder) is not None:
            # the process's own rows are its thread's alone
            trace = recorder.actor(f"nacks:{self._life.label}", "Nacks", self.trace.id)
            for message, count in nacked:
                _write_nacked(trace, message, self.trace.id, count)
            trace.close()
