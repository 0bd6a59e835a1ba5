"""Citations in sources and pages lead somewhere: the page, the heading in it, the number of a defect."""

import os
import re

import pytest

from tests.support.source_tree import ROOT, anchors, pages, text_of, tracked_files

MENTION = re.compile(r"(?<![\w/.])((?:[\w-]+/)*[\w-]+\.md)((?:(?:,\s*|\s+and\s+)?#[\w-]+)*)")
"""docs/reference/classic-queue.md#journal, #segment-files and #torn-tails: three headings of one page."""
DEFECT = re.compile(r"[Dd]efects? ([SQCH]?\d+)")


def sources():
    """The tracked source files that are written by hand, without pages."""
    return [
        name
        for name in tracked_files() or []
        if name.endswith((".py", ".js", ".toml", ".conf")) and not os.path.islink(os.path.join(ROOT, name))
    ]


def citations():
    for name in sources():
        for page, headings in MENTION.findall(text_of(name)):
            yield name, page, re.findall(r"#([\w-]+)", headings)


@pytest.mark.skipif(tracked_files() is None, reason="not in a checkout")
def test_every_page_and_heading_that_a_source_cites_is_there():
    cited = [each for each in citations() if each[1].startswith("docs/") or each[2]]
    assert len([headings for _, _, headings in cited if headings]) > 70
    dead = [
        (name, page, heading)
        for name, page, headings in cited
        for heading in headings or [None]
        if not os.path.exists(os.path.join(ROOT, page)) or (heading and heading not in anchors(page))
    ]
    assert dead == []


@pytest.mark.skipif(tracked_files() is None, reason="not in a checkout")
def test_the_reference_is_cited_by_its_path_from_the_root():
    """So that an editor opens it, and the test above sees it."""
    loose = re.compile(r"(?<!docs/reference/)(?<!docs/)\b(?:message-store|classic-queue)\.md")
    ours = os.path.relpath(__file__, ROOT)
    assert [name for name in sources() if name != ours and loose.search(text_of(name))] == []


@pytest.mark.parametrize("page", pages())
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        target, _, heading = link.partition("#")
        if "://" in link:
            continue
        path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
        if not os.path.exists(os.path.join(ROOT, path)) or (heading and heading not in anchors(path)):
            dead.append(link)
    assert dead == []


def test_every_defect_that_is_named_is_on_its_page():
    listed = set(re.findall(r"\b[SQCH]\d+\b", text_of("docs/defects.md")))
    named = {(name, each) for name in [*sources(), *pages()] for each in DEFECT.findall(text_of(name))}
    assert named
    assert [(name, each) for name, each in sorted(named) if each not in listed] == []
