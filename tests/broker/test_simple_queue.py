"""warrenmq.Queue behaves as queue.Queue does, and remembers."""

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

import warrenmq
from tests.support.limits import LIMIT
from warrenmq.broker import simple_queue
from warrenmq.broker.handles import QueueHandle
from warrenmq.errors import Blocked


def test_items_come_back_in_order_until_task_done_across_restarts(tmp_path: Path) -> None:
    with warrenmq.Queue(tmp_path) as q:
        q.put(b"1")
        q.put_many([b"2", b"3"])
        assert q.qsize() == 3
        assert q.get() == b"1"
        q.task_done()
        assert q.get() == b"2"  # never done
        assert (q.qsize(), q.empty(), q.full()) == (1, False, False)
    with warrenmq.Queue(tmp_path) as q:
        assert q.qsize() == 2
        assert [q.get(), q.get()] == [b"2", b"3"]
        q.task_done()
        q.task_done()
        q.join()
    with warrenmq.Queue(tmp_path) as q:
        assert q.empty()
        with pytest.raises(queue.Empty):
            q.get_nowait()


def test_get_waits_only_if_asked_to(tmp_path: Path) -> None:
    with warrenmq.Queue(tmp_path) as q:
        with pytest.raises(queue.Empty):
            q.get(timeout=0.02)
        late = threading.Timer(0.05, q.put, [b"late"])
        late.start()
        assert q.get(timeout=LIMIT) == b"late"
        late.join()
        q.put(b"now")
        assert q.get_nowait() == b"now"
        with pytest.raises(ValueError, match="timeout"):
            q.get(timeout=-1)
        with pytest.raises(queue.Empty):  # what does not wait has no timeout
            q.get(False, -1)
        q.put(b"at once", block=False, timeout=-1)
        assert q.get(block=False, timeout=-1) == b"at once"


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_objects_go_through_a_codec_and_never_through_pickle(tmp_path: Path, codec: str) -> None:
    item = {"a": [1, 2.5, None, "ü"], "b": {"c": True}}
    with warrenmq.Queue(tmp_path, codec=codec) as q:  # type: ignore[arg-type]
        q.put(item)
        assert q.get() == item
        with pytest.raises(TypeError):
            q.put(object())
        assert q.qsize() == 0


@pytest.mark.parametrize("item", [{1: 2}, {None: 1, 2.5: b"x"}, [1, {True: [2]}], {b"a": {"b": 1}}])
def test_what_msgpack_takes_it_gives_back(tmp_path: Path, item: Any) -> None:
    """The library reads no keys but text and bytes unless it is told to."""
    with warrenmq.Queue(tmp_path, codec="msgpack") as q:
        with pytest.raises(TypeError, match="cannot be encoded"):
            q.put({(1, 2): 3})  # a tuple comes back as a list, which is no key
        q.put(item)
        assert q.get() == item


def test_an_item_that_another_codec_wrote_is_dropped_or_put_back_by_whoever_got_it(tmp_path: Path) -> None:
    with warrenmq.Queue(tmp_path) as raw:
        raw.put(b"\xff")
    with warrenmq.Queue(tmp_path, codec="json") as q:
        for settle in (q.nack, q.task_done):
            with pytest.raises(
                ValueError, match=r"is not json: .*; task_done\(\) drops it, nack\(\) puts it back"
            ):
                q.get(timeout=LIMIT)
            settle()
        q.join()
        assert q.empty()


def test_a_body_that_is_not_bytes_and_an_invalid_codec_are_explained_in_a_sentence(tmp_path: Path) -> None:
    with warrenmq.Queue(tmp_path / "q") as q:
        with pytest.raises(TypeError, match='codec="json"'):
            q.put("text")
        with pytest.raises(ValueError, match="task_done"):
            q.task_done()
    with pytest.raises(warrenmq.PreconditionFailed, match="pickle"):
        warrenmq.Queue(tmp_path / "p", codec="pickle")  # type: ignore[arg-type]
    with pytest.raises(warrenmq.BrokerClosed):
        q.put(b"late")


def test_many_threads_share_it_and_join_waits_for_all(tmp_path: Path) -> None:
    seen: list[bytes] = []
    with warrenmq.Queue(tmp_path) as q:

        def work() -> None:
            while (item := q.get()) != b"stop":
                seen.append(item)
                q.task_done()
            q.task_done()

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        q.put_many([b"%d" % i for i in range(500)])
        q.put_many([b"stop"] * 4)
        q.join()
        for worker in workers:
            worker.join(LIMIT)
    assert sorted(seen) == sorted(b"%d" % i for i in range(500))


def test_a_queue_is_full_while_an_alarm_is_set_and_what_is_in_it_can_be_got(tmp_path: Path) -> None:
    with warrenmq.Queue(tmp_path) as q:
        q.put(b"before")
        assert not q.full()
    with warrenmq.Queue(tmp_path, settings={"vm_memory_high_watermark": 0.0}) as q:
        assert q.full()
        with pytest.raises(queue.Full, match="memory alarm is set"):
            q.put_nowait(b"refused")
        with pytest.raises(queue.Full):
            q.put(b"refused", timeout=0.01)
        with pytest.raises(queue.Full):
            q.put_many([b"refused"] * 2, timeout=0.01)
        assert q.qsize() == 1
        assert q.get() == b"before"
        q.task_done()
        q.join()


def test_items_can_be_looked_at_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simple_queue, "MOST_AHEAD", 5)
    with warrenmq.Queue(tmp_path, codec="json") as queue:
        assert queue.peek() == []
        count = 15  # more than the queue sends ahead
        queue.put_many(range(count))
        assert queue.peek() == [0]
        assert queue.peek(count + 5) == [*range(count)]
        assert queue.get() == 0
        assert queue.peek(2) == [1, 2]
        queue.nack()
        assert sorted(queue.peek(count)) == [*range(count)]
        got = []
        for _ in range(count):
            got.append(queue.get())
            queue.task_done()
        assert sorted(got) == [*range(count)]
        assert queue.peek() == []
        waiting = threading.Thread(target=queue.get)
        waiting.start()
        assert queue.peek() == []  # another thread waits for an item
        queue.put("last")
        waiting.join()


def test_any_number_of_items_may_be_got_and_not_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simple_queue, "MOST_AHEAD", 5)
    with warrenmq.Queue(tmp_path, codec="json") as items:
        items.put_many(range(12))
        assert [items.get(timeout=5) for _ in range(12)] == [*range(12)]
        with pytest.raises(queue.Empty):
            items.get(timeout=0.01)
        with pytest.raises(queue.Empty):
            items.get_nowait()
        late = threading.Timer(0.05, items.put, ["late"])
        late.start()
        assert items.get() == "late"
        for _ in range(13):
            items.task_done()
        items.put("last")
        assert items.get(timeout=5) == "last"


def test_an_item_can_be_delayed_and_counts_when_its_time_has_come(tmp_path):
    with warrenmq.Queue(tmp_path, codec="json") as q:
        q.put("later", delay=3600)
        q.put_many(["soon"], delay=0.01, headers={"a": 1})
        assert q.get(timeout=LIMIT) == "soon"
        q.task_done()
        assert q.qsize() == 0
        with pytest.raises(queue.Empty):
            q.get_nowait()
        with pytest.raises(warrenmq.PreconditionFailed, match="delay"):
            q.put("never", delay=-1)
    with warrenmq.Queue(tmp_path, codec="json") as q:
        assert q.empty()
        q.put("now")
        assert q.get(timeout=LIMIT) == "now"
        q.task_done()


def test_an_item_that_is_refused_is_told_and_counts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simple_queue, "MOST_AHEAD", 1)
    with warrenmq.Queue(tmp_path) as q:
        q._broker.set_policy("one", ".*", {"max-length": 1, "overflow": "reject-publish"})
        # the consumer is sent the first, so one more is ready
        q.put_many([b"1", b"2"])
        with pytest.raises(warrenmq.Nacked):
            q.put(b"3")
        assert q.qsize() == 2
        for body in (b"1", b"2"):
            assert q.get() == body
            q.task_done()
        q.join()


def test_a_put_that_is_refused_at_once_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be tried for ever, without a pause."""

    def refuse(*_: object, **__: object) -> None:
        raise Blocked("no room for its files")

    with warrenmq.Queue(tmp_path) as jobs:
        monkeypatch.setattr(QueueHandle, "publish_many", refuse)
        with pytest.raises(queue.Full, match="no room for its files"):
            jobs.put(b"x")
        assert jobs.qsize() == 0


def test_items_that_expire_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They counted as there, and a `join` never returned."""
    monkeypatch.setattr(simple_queue, "MOST_AHEAD", 1)
    with warrenmq.Queue(tmp_path) as q:
        q.put_many([b"ahead", b"1", b"2"], expiration="0")
        waiting = threading.Thread(target=q.join, daemon=True)
        waiting.start()
        assert q.get() == b"ahead"  # sent ahead, so it does not expire any more
        q.task_done()
        with pytest.raises(queue.Empty):
            q.get_nowait()
        assert q.qsize() == 0
        waiting.join(LIMIT)
        assert not waiting.is_alive()


def test_an_item_that_comes_again_after_a_crash_is_waited_for(tmp_path: Path) -> None:
    """Done twice it counted as two, and `join` returned while another one was not done."""
    with warrenmq.Queue(tmp_path) as q:
        q.put(b"1")
        assert q.get() == b"1"
        q._broker.runtime.kill(q._broker.inside.client.calls.address(simple_queue.NAME))
        q.task_done()  # of no effect, as the queue has taken the item back
        assert q.get(timeout=LIMIT) == b"1"
        q.task_done()
        q.put(b"2")
        waiting = threading.Thread(target=q.join, daemon=True)
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
        assert q.get(timeout=LIMIT) == b"2"
        q.task_done()
        waiting.join(LIMIT)
        assert not waiting.is_alive()


def test_a_join_ends_when_the_queue_is_closed(tmp_path: Path) -> None:
    ends: list[type[BaseException]] = []

    def wait() -> None:
        try:
            q.join()
        except warrenmq.BrokerClosed as why:
            ends.append(type(why))

    with warrenmq.Queue(tmp_path) as q:
        q.put(b"1")
        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
    waiting.join(LIMIT)
    assert ends == [warrenmq.BrokerClosed]
