"""Adapter registry: every module here may define ``ADAPTERS``, a dict that
maps a peer's name to a zero-argument factory.  Modules whose library is not
installed are reported as unavailable, not as an error.
"""

from __future__ import annotations

import importlib
import pkgutil

_SKIP = {"base"}


def registry() -> tuple[dict, dict]:
    """(name -> factory, module -> why it is unavailable)."""
    found: dict = {}
    missing: dict = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name in _SKIP:
            continue
        try:
            mod = importlib.import_module(f"{__name__}.{info.name}")
        except ImportError as e:
            missing[info.name] = str(e)
            continue
        found.update(getattr(mod, "ADAPTERS", {}))
    return found, missing


def load(name: str):
    """Import only what is needed for one peer (so RSS is that peer's)."""
    for info in pkgutil.iter_modules(__path__):
        if info.name in _SKIP:
            continue
        src = info.module_finder.find_spec(info.name)  # type: ignore[union-attr]
        text = open(src.origin, encoding="utf-8").read()
        if f'"{name}"' in text:
            try:
                mod = importlib.import_module(f"{__name__}.{info.name}")
            except ImportError:
                continue
            if name in getattr(mod, "ADAPTERS", {}):
                return mod.ADAPTERS[name]()
    raise SystemExit(f"no adapter called {name!r}; have: {sorted(registry()[0])}")
