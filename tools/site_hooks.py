"""Hooks of `mkdocs build`: they add pages (site_pages.py) and lessons, and refuse pages that fetch anything
from elsewhere.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from typing import Any

import structlog
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from tools import trace_page
from tools.site_pages import SOURCES, example_pages, lessons_list, made_pages, places, with_links_of_the_site
from warrenmq.lens.lesson import lessons
from warrenmq.lens.lesson_page import export
from warrenmq.location import HOME

ROOT = str(HOME)
_FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
_CANONICAL = re.compile(r'rel=["\']?(?:canonical|next|prev|alternate)')


def on_config(config: Any) -> Any:
    """Name each example in the navigation; have help as wide on every machine, and no news of crashes in lessons."""
    os.environ["COLUMNS"] = "80"
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    guides = next(each["How-to guides"] for each in config.nav if "How-to guides" in each)
    section = next(each for each in guides if "Examples" in each)
    section["Examples"] = [section["Examples"], *example_pages(ROOT)]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what is not in docs/."""
    for place, text in made_pages(ROOT).items():
        files.append(File.generated(config, place, content=text))
    index = files.get_file_from_path("README.md")  # the home page is the README above it
    index.dest_uri = "pages.html"
    index.url = "pages.html"
    with tempfile.TemporaryDirectory() as folder:
        for name in export(lessons(), folder):
            with open(os.path.join(folder, name), "rb") as file:
                files.append(File.generated(config, f"lessons/{name}", content=file.read()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between files of the repository into those of the site."""
    there = places(ROOT)
    pages = {path: place for path, place in there.items() if path not in SOURCES}
    at = {place: path for path, place in pages.items() if "." in os.path.basename(path) or path == "LICENSE"}
    if page.file.src_uri == "lessons.md":
        titles = {f"{each.name}.html": each.title for each in lessons()}
        markdown = markdown.replace("\n## Writing one", lessons_list(titles) + "\n## Writing one", 1)
    if page.file.src_uri == "trace.md":
        markdown += "\n" + trace_page.events()
    path = at.get(page.file.src_uri)
    return with_links_of_the_site(markdown, path, there) if path else markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that fetches anything from another server: the site works offline."""
    fetched = [each for each in _FETCHED.findall(output) if not _CANONICAL.search(each)]
    if fetched:
        raise PluginError(f"{page.file.src_uri} fetches {fetched[0]}; keep a copy on the site")
    return output
