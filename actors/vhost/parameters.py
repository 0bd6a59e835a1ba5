"""Runtime parameters of a virtual host: setting and clearing policies and limits, and applying policies (rabbit_policy).

A change is on disk before it is answered, and then holds for the queues and exchanges that are there: each
queue whose arguments become others is told.
"""

from __future__ import annotations

from warrenmq.actors.vhost.messages import ClearParameter, SetParameter
from warrenmq.actors.vhost.queue_declarations import QueueDeclarations
from warrenmq.actors.vhost.vhost import Vhost
from warrenmq.directory.definition_frames import check_storable
from warrenmq.errors import NotFound
from warrenmq.log import Log
from warrenmq.vhost.policies import LIMITS, Policies, Policy, check_parameter, without_effect

log = Log("warrenmq.vhost")


class Parameters:
    """The runtime parameters of a vhost; belongs to the vhost process."""

    def __init__(self, vhost: Vhost, queues: QueueDeclarations) -> None:
        self._vhost = vhost
        self._queues = queues

    def tell_refused(self) -> None:
        """Log the policies that hold for nothing, at a start."""
        for policy in self._vhost.policies:
            if policy.refused:
                log.warning(
                    "a policy holds for nothing, as its pattern is refused; set it anew", vhost=self._vhost.name,
                    component=policy.component, policy=policy.name, pattern=policy.pattern, reason=policy.refused,
                )  # fmt: skip

    def check_set(self, request: SetParameter) -> SetParameter:
        """Refuse what is no policy and no limit."""
        check_storable(f"{request.component} {request.name!r}", {"value": request.value}, request.name)
        check_parameter(request.component, request.name, request.value)
        return request

    def set(self, request: SetParameter) -> bool:
        """Set a parameter; False if there was none of this name."""
        key = request.component, request.name
        known = key in self._vhost.definitions.parameters
        self._vhost.definitions.set_parameter(*key, request.value)
        if request.component != LIMITS:
            policy = Policy.of(*key, request.value)
            if ignored := without_effect(policy.definition):
                log.warning("a policy has keys without effect on one node", policy=policy.name, keys=ignored)
        self._apply()
        return known

    def check_clear(self, request: ClearParameter) -> ClearParameter:
        """Refuse to clear what is not there."""
        if (request.component, request.name) not in self._vhost.definitions.parameters:
            words = request.component.replace("_", " ")
            msg = f"there is no {words} {request.name!r} in vhost {self._vhost.name!r}"
            raise NotFound(msg, reply_text=f"no {words} '{request.name}' in vhost '{self._vhost.name}'")
        return request

    def clear(self, request: ClearParameter) -> None:
        """Do not have it."""
        self._vhost.definitions.clear_parameter(request.component, request.name)
        self._apply()

    def _apply(self) -> None:
        vhost = self._vhost
        before, after = vhost.policies, Policies(vhost.definitions.parameters)
        vhost.policies = after
        for record in vhost.records():
            arguments = after.queue_arguments(record, vhost.name)
            if arguments != before.queue_arguments(record, vhost.name):
                self._queues.apply(record, arguments)
        for name in list(vhost.router.exchanges):
            vhost.router.set_alternate(name, after.alternate(name))
