"""The server of one lesson: its page, the lens on its trace beside it, and the drive behind it.

with Driven(script_name(lesson), lesson.title) as driven:
    run_site(lesson_site(played, driven, token), port=0, said=print)

GET  /          the lesson
GET  /lens/     the lens on its trace
GET  /drive/    the drive (drive_site.py), whose commands need the token (header X-Lens-Token)
"""

from __future__ import annotations

import hmac

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route

from warrenmq.lens.drive_site import Driven, drive_routes
from warrenmq.lens.feed import Feed
from warrenmq.lens.lesson import Played
from warrenmq.lens.lesson_page import STYLE, page
from warrenmq.lens.saved import static
from warrenmq.lens.server import Guard, site
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace.reader import open_memory


def lesson_site(played: Played, driven: Driven, token: str = "") -> Starlette:
    """Build the ASGI application; without a token the drive takes no commands."""
    with open_memory(played.files) as trace:
        text, trusted = (
            page(played, trace, lens="lens/", drive=f"drive/{at}") for at in ("", f"#token={token}")
        )
        feed = Feed(trace.catalog.runs, played.lesson.title)
        feed.add(rows_in_order(trace))

    async def show(request: Request) -> Response:
        given = request.query_params.get("token", "")
        return HTMLResponse(
            trusted if token and hmac.compare_digest(given.encode(), token.encode()) else text
        )

    async def style(_: Request) -> Response:
        return Response(static(STYLE), media_type="text/css")

    return Starlette(
        routes=[
            Route("/", show),
            Route(f"/{STYLE}", style),
            Mount("/drive", drive_routes(driven)),
            Mount("/lens", site(feed)),
        ],
        middleware=[Middleware(Guard, token=token)],
    )
