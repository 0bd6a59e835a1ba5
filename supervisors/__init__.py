"""Supervision in OTP's terms; imported as `warrenmq.supervisors`.

In the order of reading:

    child_spec   what is known of a child
    strategy     which children share a fate, how many restarts are too many
    supervisor   starts, restarts, stops
    calls        requests to a supervisor
    broker_sup   the broker's tree
"""

if __name__ != "warrenmq.supervisors":
    msg = "import warrenmq.supervisors, not supervisors: the folder is only its home in the repository"
    raise ImportError(msg)

from warrenmq.supervisors.calls import (
    ChildInfo,
    delete_child,
    restart_child,
    start_child,
    stop_child,
    which_children,
)
from warrenmq.supervisors.child_spec import ChildSpec
from warrenmq.supervisors.supervisor import Supervisor

__all__ = [
    "ChildInfo",
    "ChildSpec",
    "Supervisor",
    "delete_child",
    "restart_child",
    "start_child",
    "stop_child",
    "which_children",
]
