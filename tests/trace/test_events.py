"""Every event number has its class, and the tables of the site have every event."""

from tools.trace_page import events
from warrenmq.trace.events import Ev
from warrenmq.trace.schema import EVENTS


def test_every_event_is_declared_and_its_sentence_names_its_own_columns():
    assert set(EVENTS) == set(map(int, Ev))
    for event in EVENTS.values():
        named = {part.split("}")[0] for part in event.says.split("{")[1:]}
        beside = {"actor", "messages", "message_ids", "synced"}
        assert named - beside <= {column.name for column in event.columns}, event.name
        assert "actor" in named, event.name


def test_the_tables_of_the_site_have_every_event_with_its_sentence():
    tables = events()
    for event in EVENTS.values():
        assert f"### {event.name} ({event.number})\n" in tables
        assert f"> `{event.says}`\n" in tables
