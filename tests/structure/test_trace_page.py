"""docs/trace.md is what the registry of events says, and every event number has its class."""

from tests.support.source_tree import text_of
from tools.trace_page import page
from warrenmq.trace.events import Ev
from warrenmq.trace.schema import EVENTS


def test_the_page_of_the_trace_is_up_to_date():
    assert text_of("docs/trace.md") == page(), "python -m tools.trace_page > docs/trace.md"


def test_every_event_is_declared_and_its_sentence_names_its_own_columns():
    assert set(EVENTS) == set(map(int, Ev))
    for event in EVENTS.values():
        named = {part.split("}")[0] for part in event.says.split("{")[1:]}
        beside = {"actor", "messages", "message_ids", "synced"}
        assert named - beside <= {column.name for column in event.columns}, event.name
        assert "actor" in named, event.name
