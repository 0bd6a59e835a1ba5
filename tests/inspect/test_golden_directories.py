"""`check --json` on directories that a real RabbitMQ 3.10.8 wrote: what it delivers, message by message."""

import json
import os
import stat

import pytest

from tests.support import golden
from tests.support.directories import check, fingerprint, listed

TORN = [case for case in golden.CASES if (golden.ROOT / case / "variants.json").exists()]
VARIANTS = [
    pytest.param(case, variant, id=variant["name"])
    for case in TORN
    for variant in json.loads((golden.ROOT / case / "variants.json").read_text())["variants"]
]
A_MINUTE = 60_000_000
"""The broker read the files within a minute of their end."""


@pytest.mark.parametrize("case", golden.CASES)
def test_the_messages_are_those_that_rabbitmq_delivers_and_nothing_is_wrong(case, tmp_path):
    manifest = golden.manifest(case)
    status, found = check(golden.lay_out(case, tmp_path), now_us=manifest["ended_us"] + A_MINUTE)
    assert (status, found["damaged"]) == (0, [])
    for queue in manifest["queues"]:
        assert listed(found, queue) == golden.as_listed(queue), queue["name"]
    assert {(each["vhost"], each["name"]) for each in found["queues"]} == {
        (each["vhost"], each["name"]) for each in manifest["queues"] if any(d["exists"] for d in each["dirs"])
    }


@pytest.mark.parametrize("case", golden.CASES)
def test_messages_that_are_not_recovered_have_the_manifests_reason(case, tmp_path):
    manifest = golden.manifest(case)
    _, found = check(golden.lay_out(case, tmp_path), now_us=manifest["ended_us"] + A_MINUTE)
    names = ("seq_id", "msg_id", "where", "persistent", "readable", "reason", "expiry_us")
    for queue in manifest["queues"]:
        rows = [
            {name: row[name] for name in names}
            for each in found["queues"]
            if (each["vhost"], each["name"]) == (queue["vhost"], queue["name"])
            for row in each["not_recovered"]
        ]
        assert rows == [{name: row[name] for name in names} for row in queue["not_recovered"]]


@pytest.mark.parametrize("case", golden.CASES)
def test_stores_have_the_numbers_of_the_manifest(case, tmp_path):
    _, found = check(golden.lay_out(case, tmp_path))
    stores = {each["directory"]: each for each in found["stores"]}
    assert stores.keys() == golden.manifest(case)["stores"].keys()
    for path, store in golden.manifest(case)["stores"].items():
        assert stores[path]["records"] == store["records"]
        assert sorted(file["name"] for file in stores[path]["files"]) == sorted(store["rdq"] + store["rdt"])


@pytest.mark.parametrize(("case", "variant"), VARIANTS)
def test_damage_takes_nothing_but_what_it_hit(case, variant, tmp_path):
    [queue] = golden.manifest(case)["queues"]
    status, found = check(golden.lay_out_variant(case, variant["archive"], tmp_path))
    truth = {
        (row["seq_id"], row["sha256"], str(row["properties"])): row["position"]
        for row in golden.as_listed(queue)
    }
    altered = {each["body_sha256"] for each in variant["altered"]}
    positions, others = [], []
    for row in listed(found, queue):
        position = truth.get((row["seq_id"], row["sha256"], str(row["properties"])))
        if position is not None:
            positions.append(position)
        elif row["sha256"] not in altered:
            others.append(row)
    assert positions == sorted(positions)
    assert not set(variant["must_read"]) - set(positions)
    assert not set(variant["may_read"]) - set(positions), "with more effort they can be read"
    assert not set(positions) - set(variant["must_read"]) - set(variant["may_read"])
    assert len(others) <= len(variant["may_return_acked"])
    if variant["must_report"]:
        assert status == 1
        assert found["damaged"] or found["queues"][0]["not_recovered"]


@pytest.mark.parametrize("case", golden.CASES)
def test_nothing_is_written(case, tmp_path):
    directory = golden.lay_out(case, tmp_path)
    before = fingerprint(directory)
    check(directory)
    assert fingerprint(directory) == before


def test_a_directory_without_write_permission_is_read(tmp_path):
    directory = golden.lay_out("c02-v1-store-a", tmp_path / "data")
    for path in [directory, *directory.rglob("*")]:
        os.chmod(path, stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    try:
        status, found = check(directory)
    finally:
        for path in [directory, *directory.rglob("*")]:
            os.chmod(path, 0o700)
    assert status == 0
    assert len(found["queues"][0]["messages"]) == 145


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="there is no /proc to look at")
def test_no_file_stays_open(tmp_path):
    case = next(each for each in golden.CASES if "gc" in each)
    directory = golden.lay_out(case, tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    check(directory)
    assert len(os.listdir("/proc/self/fd")) == before
