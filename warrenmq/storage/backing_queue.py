"""What a queue process keeps its messages in: one backing queue, or one for each priority."""

from __future__ import annotations

from typing import TypeAlias

from warrenmq.storage.priority_queue import PriorityQueue
from warrenmq.storage.variable_queue import VariableQueue

BackingQueue: TypeAlias = VariableQueue | PriorityQueue
