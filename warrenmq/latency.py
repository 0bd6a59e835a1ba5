"""A histogram of latencies: a Counter of classes, each 6 % wide.

Histograms of millions of messages are a few hundred numbers, and merge by addition.
"""

from __future__ import annotations

from collections import Counter


def delay_class(ns: int) -> int:
    """The class of a delay: 16 classes to a doubling, so 6 % wide, and exact below 32."""
    bits = max(ns, 0).bit_length()
    return ns if bits <= 4 else (bits - 4) * 16 + ((ns >> (bits - 5)) & 15)


def class_middle(cls: int) -> float:
    """The delay in ns that stands for a class; the inverse of `delay_class` but for its width."""
    if cls < 16:
        return float(cls)
    shift = cls // 16 - 1
    return ((16 + cls % 16) << shift) + ((1 << shift) - 1) / 2


def percentile(histogram: Counter[int], percent: float) -> float:
    """The latency in ns that `percent` of the messages do not exceed, 6 % sharp; 0 for an empty histogram."""
    wanted, seen = percent / 100 * histogram.total(), 0
    for cls, n in sorted(histogram.items()):
        seen += n
        if seen >= wanted:
            return class_middle(cls)
    return 0.0
