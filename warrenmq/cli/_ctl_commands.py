"""The commands of `warrenmq ctl`, as data: rabbitmqctl's names, arguments and columns, and what each asks of
the management API.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warrenmq.cli._ctl_client import Api, path
from warrenmq.errors import CallerError


@dataclass(frozen=True, slots=True)
class Listing:
    """A command that prints rows."""

    says: str
    """The headline of a listing; {vhost} is the virtual host."""
    path: str
    """Segments; {vhost} and {name} are filled in."""
    columns: tuple[str, ...]
    """The columns that are printed unless others are asked for."""
    renamed: tuple[tuple[str, str], ...] = ()
    """rabbitmqctl's name of a column -> the API's, where they differ."""
    arguments: tuple[str, ...] = ()

    @property
    def of_vhost(self) -> bool:
        """True if it takes -p VHOST."""
        return "{vhost}" in self.path


LISTINGS: dict[str, Listing] = {
    "list_queues": Listing("queues for vhost {vhost}", "queues/{vhost}", ("name", "messages")),
    "list_exchanges": Listing("exchanges for vhost {vhost}", "exchanges/{vhost}", ("name", "type")),
    "list_bindings": Listing(
        "bindings for vhost {vhost}", "bindings/{vhost}",
        ("source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments"),
        (("source_name", "source"), ("destination_name", "destination"), ("destination_kind", "destination_type")),
    ),
    "list_consumers": Listing(
        "consumers in vhost {vhost}", "consumers/{vhost}",
        ("queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active", "arguments"),
        (("queue_name", "queue.name"), ("channel_pid", "channel_details.name")),
    ),
    "list_connections": Listing(
        "connections", "connections", ("user", "peer_host", "peer_port", "state"), (("pid", "name"),)
    ),
    "list_channels": Listing(
        "channels", "channels", ("pid", "user", "consumer_count", "messages_unacknowledged"), (("pid", "name"),),
    ),
    "list_users": Listing("users", "users", ("user", "tags"), (("user", "name"),)),
    "list_vhosts": Listing("vhosts", "vhosts", ("name",)),
    "list_permissions": Listing(
        "permissions for vhost {vhost}", "vhosts/{vhost}/permissions", ("user", "configure", "write", "read")
    ),
    "list_user_permissions": Listing(
        "permissions for user {name}", "users/{name}/permissions", ("vhost", "configure", "write", "read"),
        arguments=("name",),
    ),
    "list_topic_permissions": Listing(
        "topic permissions for vhost {vhost}", "vhosts/{vhost}/topic-permissions", ("user", "exchange", "write", "read")
    ),
    "list_user_topic_permissions": Listing(
        "topic permissions for user {name}", "users/{name}/topic-permissions", ("vhost", "exchange", "write", "read"),
        arguments=("name",),
    ),
    "list_policies": Listing(
        "policies for vhost {vhost}", "policies/{vhost}",
        ("vhost", "name", "pattern", "apply-to", "definition", "priority"),
    ),
    "list_operator_policies": Listing(
        "operator policies for vhost {vhost}", "operator-policies/{vhost}",
        ("vhost", "name", "pattern", "apply-to", "definition", "priority"),
    ),
    "list_vhost_limits": Listing("limits for vhost {vhost}", "vhost-limits/{vhost}", ("vhost", "value")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Action:
    """A command that changes something, or says one thing."""

    says: str
    """The sentence that tells what the command does; the arguments are filled in."""
    does: Callable[[Api, argparse.Namespace], Any]
    arguments: tuple[str, ...] = ()
    """Positional; one that ends in * takes the rest, one that ends in ? may be left out."""
    options: tuple[str, ...] = ()
    """Those that end in ! are switches."""

    @property
    def of_vhost(self) -> bool:
        """True if it takes -p VHOST."""
        return "{vhost}" in self.says


def _json(text: str, what: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as why:
        raise CallerError(f"the {what} {text!r} is no JSON: {why}.") from why
    if not isinstance(value, dict):
        raise CallerError(f"the {what} {text!r} is no JSON object.")
    return value


def _set_policy(kind: str) -> Callable[[Api, argparse.Namespace], Any]:
    def does(api: Api, args: argparse.Namespace) -> Any:
        try:
            priority = int(args.priority or 0)
        except ValueError:
            raise CallerError(f"the priority {args.priority!r} is no whole number.") from None
        value = {"pattern": args.pattern, "definition": _json(args.definition, "definition"),
                 "priority": priority, "apply-to": args.apply_to or "all"}  # fmt: skip
        return api.call("PUT", f"{kind}/{path(args.vhost, args.name)}", value)

    return does


def _put_user(api: Api, args: argparse.Namespace) -> Any:
    if any(row["name"] == args.name for row in api.call("GET", "users")):
        raise CallerError(f"user {args.name!r} is there already; change_password changes its password.")
    return api.call("PUT", f"users/{path(args.name)}", {"password": args.password, "tags": ""})


def _change_user(api: Api, args: argparse.Namespace) -> Any:
    row = api.call("GET", f"users/{path(args.name)}")
    body: dict[str, Any] = {"tags": row["tags"], "password_hash": row["password_hash"],
                            "hashing_algorithm": row["hashing_algorithm"]}  # fmt: skip
    if hasattr(args, "password"):
        body = {"tags": row["tags"], "password": args.password}
    else:
        body["tags"] = args.tags
    return api.call("PUT", f"users/{path(args.name)}", body)


def _set_limits(api: Api, args: argparse.Namespace) -> None:
    for name, value in _json(args.definition, "definition").items():
        api.call("PUT", f"vhost-limits/{path(args.vhost, name)}", {"value": value})


def _clear_limits(api: Api, args: argparse.Namespace) -> None:
    for row in api.call("GET", f"vhost-limits/{path(args.vhost)}"):
        for name in row["value"]:
            api.call("DELETE", f"vhost-limits/{path(args.vhost, name)}")


def _delete_queue(api: Api, args: argparse.Namespace) -> Any:
    options = [
        name for name, wanted in (("if-empty", args.if_empty), ("if-unused", args.if_unused)) if wanted
    ]
    query = "?" + "&".join(f"{name}=true" for name in options) if options else ""
    return api.call("DELETE", f"queues/{path(args.vhost, args.name)}{query}")


def _export(api: Api, args: argparse.Namespace) -> Any:
    found = api.call("GET", "definitions")
    if args.file == "-" and args.json:
        return found
    text = json.dumps(found, indent=1)
    if args.file == "-":
        print(text)
    else:
        with open(args.file, "w", encoding="utf-8") as out:
            out.write(text)
    return None


def _import(api: Api, args: argparse.Namespace) -> Any:
    try:
        with open(args.file, encoding="utf-8") as file:
            found = json.load(file)
    except (ValueError, RecursionError) as why:  # not with what is in it: there are password hashes
        raise CallerError(f"{args.file} is no file of definitions: {why}.") from why
    return api.call("POST", "definitions", found)


def _status(api: Api, _args: argparse.Namespace) -> Any:
    overview = api.call("GET", "overview")
    (node,) = [each for each in api.call("GET", "nodes") if each["name"] == overview["node"]]
    totals, counts = overview["queue_totals"], overview["object_totals"]
    return {
        "node": node["name"], "product": f"{overview['product_name']} {overview['product_version']}",
        "pid": node["os_pid"], "uptime_s": node["uptime"] // 1000, "data": node["db_dir"],
        "memory": f"{node['mem_used']} of {node['mem_limit']}{' ALARM' if node['mem_alarm'] else ''}",
        "disk_free": f"{node['disk_free']}, at least {node['disk_free_limit']}{' ALARM' if node['disk_free_alarm'] else ''}",
        "file_descriptors": f"{node['fd_used']} of {node['fd_total']}",
        "listeners": ", ".join(f"{each['protocol']} {each['ip_address']}:{each['port']}" for each in overview["listeners"]),
        **counts, **{name: value for name, value in totals.items() if not name.endswith("_details")},
    }  # fmt: skip


def _at(method: str, *names: str, body: Callable[[argparse.Namespace], Any] | None = None) -> Any:
    """An action that is one call: names in braces are arguments."""

    def does(api: Api, args: argparse.Namespace) -> Any:
        filled = [getattr(args, name[1:-1]) if name.startswith("{") else name for name in names]
        return api.call(method, path(*filled), None if body is None else body(args))

    return does


def _permissions(args: argparse.Namespace) -> dict[str, str]:
    return {"configure": args.configure, "write": args.write, "read": args.read}


def _topic_permissions(args: argparse.Namespace) -> dict[str, str]:
    return {"exchange": args.exchange, "write": args.write, "read": args.read}


def _clear_topic_permissions(api: Api, args: argparse.Namespace) -> Any:
    """Clear them for one exchange, which RabbitMQ's API lacks, or for all."""
    one = () if args.exchange is None else (args.exchange,)
    return api.call("DELETE", f"topic-permissions/{path(args.vhost, args.user, *one)}")


ACTIONS: dict[str, Action] = {
    "add_user": Action("Adding user {name}", _put_user, ("name", "password")),
    "delete_user": Action("Deleting user {name}", _at("DELETE", "users", "{name}"), ("name",)),
    "change_password": Action("Changing password for user {name}", _change_user, ("name", "password")),
    "set_user_tags": Action("Setting tags for user {name}", _change_user, ("name", "tags*")),
    "set_permissions": Action(
        "Setting permissions for user {user} in vhost {vhost}",
        _at("PUT", "permissions", "{vhost}", "{user}", body=_permissions), ("user", "configure", "write", "read"),
    ),
    "clear_permissions": Action(
        "Clearing permissions for user {user} in vhost {vhost}", _at("DELETE", "permissions", "{vhost}", "{user}"), ("user",)
    ),
    "set_topic_permissions": Action(
        "Setting topic permissions on {exchange} for user {user} in vhost {vhost}",
        _at("PUT", "topic-permissions", "{vhost}", "{user}", body=_topic_permissions), ("user", "exchange", "write", "read"),
    ),
    "clear_topic_permissions": Action(
        "Clearing topic permissions for user {user} in vhost {vhost}", _clear_topic_permissions, ("user", "exchange?")
    ),
    "add_vhost": Action("Adding vhost {name}", _at("PUT", "vhosts", "{name}", body=lambda _: {}), ("name",)),
    "delete_vhost": Action("Deleting vhost {name}", _at("DELETE", "vhosts", "{name}"), ("name",)),
    "set_policy": Action(
        "Setting policy {name} for pattern {pattern} to {definition} for vhost {vhost}",
        _set_policy("policies"), ("name", "pattern", "definition"), ("priority", "apply-to"),
    ),
    "clear_policy": Action(
        "Clearing policy {name} on vhost {vhost}", _at("DELETE", "policies", "{vhost}", "{name}"), ("name",)
    ),
    "set_operator_policy": Action(
        "Setting operator policy {name} for pattern {pattern} to {definition} for vhost {vhost}",
        _set_policy("operator-policies"), ("name", "pattern", "definition"), ("priority", "apply-to"),
    ),
    "clear_operator_policy": Action(
        "Clearing operator policy {name} on vhost {vhost}", _at("DELETE", "operator-policies", "{vhost}", "{name}"), ("name",)
    ),
    "set_vhost_limits": Action("Setting limits of vhost {vhost}", _set_limits, ("definition",)),
    "clear_vhost_limits": Action("Clearing limits of vhost {vhost}", _clear_limits),
    "purge_queue": Action(
        "Purging queue {name} in vhost {vhost}", _at("DELETE", "queues", "{vhost}", "{name}", "contents"), ("name",)
    ),
    "delete_queue": Action(
        "Deleting queue {name} on vhost {vhost}", _delete_queue, ("name",), ("if-empty!", "if-unused!")
    ),
    "close_connection": Action("Closing connection {name}", _at("DELETE", "connections", "{name}"), ("name",)),
    "export_definitions": Action("Exporting definitions to {file}", _export, ("file",)),
    "import_definitions": Action("Importing definitions from {file}", _import, ("file",)),
    "status": Action("Status of the node", _status),
    "ping": Action("Asking the node whether queues work in vhost {vhost}", _at("GET", "aliveness-test", "{vhost}")),
}  # fmt: skip
