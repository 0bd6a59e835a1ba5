"""All routes of the HTTP API, below /api, and the Prometheus page beside it."""

from __future__ import annotations

from dataclasses import replace

from warrenmq.management import (
    certificates,
    connections,
    definitions,
    exchanges,
    messages,
    metrics,
    overview,
    policies,
    queues,
    users,
    vhosts,
)

_PARTS = (
    overview,
    certificates,
    vhosts,
    users,
    connections,
    exchanges,
    queues,
    messages,
    policies,
    definitions,
)

ROUTES = (
    *(replace(route, pattern=f"api/{route.pattern}") for part in _PARTS for route in part.ROUTES),
    *metrics.ROUTES,
)
"""The routes; the first that fits answers, so a spelt-out path stands before one that takes any name."""
