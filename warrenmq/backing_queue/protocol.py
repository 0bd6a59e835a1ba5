"""What a queue process keeps its messages in: one backing queue, or one for each priority."""

from __future__ import annotations

from typing import TypeAlias

from warrenmq.backing_queue.priority_queue import PriorityQueue
from warrenmq.backing_queue.variable_queue import VariableQueue

BackingQueue: TypeAlias = VariableQueue | PriorityQueue
