"""Every violation is explained by a short chain of rows, and what is missing in it is named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random

from tests.replay.planted_violations import (
    PLANTS,
    a_confirm_before_the_store_reported,
    a_confirm_without_a_sync,
    each_plant,
    planted,
)
from tests.replay.planting import Plant
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import write_trace
from warrenmq.replay.drive.engine import replay_memory, replay_trace
from warrenmq.replay.drive.result import Result
from warrenmq.replay.explain.causes import explain
from warrenmq.replay.explain.evidence import Want, pick
from warrenmq.replay.explain.links import ChainWords
from warrenmq.replay.explain.story import LONGEST, Chain
from warrenmq.replay.rules.registry import RULES
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row
from warrenmq.trace.reader import open_memory


def events(chain: Chain) -> list[str]:
    """The names of its rows; of missing ones with a question mark."""
    return [
        Ev(link.row.event).name if link.row is not None else f"{link.missing.split()[0].strip(':')}?"
        for link in chain
    ]


def first_chain(result: Result, rule: str) -> Chain:
    place = next(place for place, finding in enumerate(result.violations) if finding.rule == rule)
    return result.chains[place]


@each_plant
def test_a_violation_has_a_chain_that_ends_with_its_evidence(
    rule: str, plant: Plant, implied: frozenset[str]
) -> None:
    result = replay_memory(write_trace(planted(plant)))
    for place, finding in enumerate(result.violations):
        chain = result.chains[place]
        assert 1 <= len(chain) <= LONGEST
        here = {(link.run, link.row.actor, link.row.seq) for link in chain if link.row is not None}
        assert set(finding.rows) <= here | {(run, actor, seq) for run, actor, seq in finding.rows if seq == 0}
        words = ChainWords(result.catalog)
        rows = [each for each in json.loads(json.dumps(words.as_dicts(chain))) if "missing" not in each]
        assert len(list(words.lines(chain))) == len(chain)
        assert all(each["sentence"] in "\n".join(words.lines(chain)) for each in rows)
    if rule not in {"T1", "T2", "R2"}:
        assert len(first_chain(result, rule)) > 1, "the evidence alone explains nothing"


@each_plant
def test_no_rule_fails_to_explain_where_rows_are_gone_or_others_claim_their_places(
    rule: str, plant: Plant, implied: frozenset[str]
) -> None:
    trace, rng = open_memory(write_trace(planted(plant))), Random(plant.__name__)
    runs, violations = trace.catalog.runs, replay_trace(trace).violations
    pieces = [(piece, trace.rows(piece)) for piece in trace.catalog.chunks]

    def gather(wants: Sequence[Want]) -> Iterator[tuple[int, int, Row]]:
        for piece, rows in pieces:
            for number, run, row in pick(wants, runs, piece, lambda rows=rows: rows):  # type: ignore[misc]
                if rng.random() < 0.7:
                    yield number, run, row
                if rng.random() < 0.1:
                    yield number, run, rng.choice(rows)._replace(seq=row.seq)

    for _ in range(20):
        chains = explain(violations, runs, RULES.values(), gather)
        assert chains.keys() == set(range(len(violations)))


def test_an_early_confirm_is_explained_by_the_sync_that_is_missing() -> None:
    result = replay_memory(write_trace(planted(a_confirm_without_a_sync)))
    assert events(first_chain(result, "C1")) == ["SEND", "PUBLISH", "QI_SYNC?", "CONFIRM"]


def test_a_confirm_before_the_store_is_explained_by_what_the_store_did() -> None:
    result = replay_memory(write_trace(planted(a_confirm_before_the_store_reported)))
    chain = events(first_chain(result, "C1"))
    assert chain[:2] == ["SEND", "PUBLISH"]
    assert chain[-2:] == ["ON_DISK?", "CONFIRM"]
    assert {"STORE_WRITE", "APPEND", "FILE_SYNC"} <= set(chain)


def test_a_clean_trace_has_nothing_to_explain() -> None:
    assert replay_memory(write_trace(consistent_trace(3))).chains == {}


def test_how_the_rows_were_cut_into_pieces_does_not_matter_to_a_chain() -> None:
    for _, plant, _ in PLANTS[::3]:
        runs = planted(plant)
        once = replay_memory(write_trace(runs, 1000)).chains
        assert replay_memory(write_trace(runs, 7, backwards=True)).chains == once, plant.__name__
