"""Generate and mutate random scripts; both depend on a random number generator alone."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from warrenmq.simulate.script import MORE_QUEUES, TARGETS, VERBS, VIA, Script, Step, step

WIDE = "wide"
SIZES = {"short": (2, 8), "long": (8, 28), WIDE: (6, 20)}
"""The fewest and the most steps of a random script: short ones find less in the same time, longer ones little
more (docs/simulate.md). Wide ones draw from all verbs.
"""
_THEMES = (
    ("wire", "unwire", "drop", "send", "delete", "delete_if"),
    ("policy", "audit", "publish_many", "nack", "reject"),
    ("rivals", "linger", "consume", "settle_many", "take"),
    ("own", "brief", "delete_if", "declare", "retry"),
    (),
)
"""Verbs that belong together; a wide script draws those of one theme more often, as what goes wrong with them
needs several.
"""
_THEMED = 5
"""How much more often."""
_FAVOURED = 0.6
"""Share of the arguments that name a queue or a client which name the script's favourite: what goes wrong
needs several steps with it.
"""


def generate(rng: Random, faults: Collection[str], size: str = "long") -> Script:
    """A random script of a size (SIZES) with faults of these kinds."""
    verbs, targets = _verbs(faults, size), (*TARGETS, *MORE_QUEUES) if size == WIDE else TARGETS
    favourites = rng.choice(targets), rng.choice(VIA)
    if size == WIDE:
        theme = rng.choice(_THEMES)
        verbs += [name for name in verbs if name in theme] * (_THEMED - 1)
    return tuple(_random_step(rng, verbs, size, favourites) for _ in range(rng.randint(*SIZES[size])))


def mutate(rng: Random, script: Script, faults: Collection[str], size: str = "long") -> Script:
    """Mutate a script by one to four changes: add, remove or replace a step, swap two, repeat a part; it
    grows to twice its size.
    """
    steps, verbs = list(script), _verbs(faults, size)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(steps) + 1)
        match rng.randrange(5) if steps else 0:
            case 0:
                steps.insert(place, _random_step(rng, verbs, size))
            case 1:
                del steps[min(place, len(steps) - 1)]
            case 2:
                steps[min(place, len(steps) - 1)] = _random_step(rng, verbs, size)
            case 3:
                other = rng.randrange(len(steps))
                here = min(place, len(steps) - 1)
                steps[here], steps[other] = steps[other], steps[here]
            case _:
                steps[place:place] = steps[max(0, place - 3) : place]
    return tuple(steps[: 2 * SIZES[size][1]])


def _verbs(faults: Collection[str], size: str) -> list[str]:
    return [
        name
        for name, verb in VERBS.items()
        if (not verb.fault or verb.fault in faults) and (not verb.is_wide or size == WIDE)
    ]


def _random_step(rng: Random, verbs: list[str], size: str, favourites: Collection[str] = VIA[:1]) -> Step:
    (verb,) = rng.choices(verbs, [VERBS[name].weight for name in verbs])
    arguments = {
        name: each.choices + each.more if size == WIDE else each.choices
        for name, each in VERBS[verb].arguments.items()
    }
    return step(
        verb, **{name: _random_value(rng, choices, favourites) for name, choices in arguments.items()}
    )


def _random_value(rng: Random, choices: tuple[int | str, ...], favourites: Collection[str]) -> int | str:
    if choices == VIA and VIA[0] in favourites:
        return VIA[0]  # a connection takes time, so not every script has one
    for favourite in favourites:
        if favourite in choices and rng.random() < _FAVOURED:
            return favourite
    return rng.choice(choices)
