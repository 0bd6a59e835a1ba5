"""Drive: an interactive simulation of a broker, steered one turn of one actor at a time.

    drive = Drive("empty", seed=7)
    drive.do({"do": "declare", "queue": "jobs"})
    drive.do({"do": "publish", "queue": "jobs", "size": 5000, "hold": True})    # it lies in the mailbox
    drive.do({"do": "turn", "actor": "queue:jobs"})                             # that mailbox is served
    drive.do({"do": "turn"})                                                    # the seed chooses
    drive.do({"do": "power_cut"})
    drive.link()                    # a text that makes the same run again: Drive.of_link(link)
    drive.fork(120)                 # another run, which has come to row 120 in the same way

The actors are the real ones, in `warrenmq.runtime.Simulation`.  A run is its script, seed, profile and
choices: the commands, and the turns between them.  So the same link gives the same trace, to the byte.  Turns
end wherever an actor waits, casts, or is about to use the disk: a power cut between two turns may fall
between two disk operations.

Commands are JSON objects, and so are the answers (drive_commands.py lists them); a server passes them on.
All calls of one Drive must come from the thread that made it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

from warrenmq.errors import CallerError
from warrenmq.lens.drive_commands import Commands
from warrenmq.lens.lesson import script_of
from warrenmq.runtime import Deadlock
from warrenmq.testing import SimulatedMachine

LINK_VERSION = 1
MOST_TURNS = 20_000
"""The most turns of one command; an actor that is busy for longer is left where it is."""
MOST_BYTES = 1 << 20
"""The most bytes of an unpacked link."""
PROFILES = ("classic", "modern")

Item = int | str | list[Any]
"""A choice: so many turns of the seed's, a turn of this actor, or a command as [name, arguments]."""


class Drive:
    """One interactive simulated run; close it to free its actors."""

    def __init__(
        self,
        script: str = "empty",
        *,
        seed: int | None = None,
        profile: str | None = None,
        choices: Sequence[Item] = (),
    ) -> None:
        """`script` is "empty" or a lesson; its own seed and profile count where none are given.

        `choices` are taken at once; the first may be ["stop", {"row": n}], which ends the script there.
        CallerError: unknown script or profile, or a choice that makes no sense.
        """
        stop = _stop_of(choices)
        chosen = script_of(script)
        self.script = script
        self.seed = chosen.seed if seed is None else seed
        self.profile = profile or chosen.profile
        if self.profile not in PROFILES:
            raise CallerError(f"there is no profile {self.profile!r}; use classic or modern.")
        self.choices: list[Item] = [*choices[:1]] if stop else []
        """The choices so far; each command adds some."""
        self.came: list[tuple[str, int]] = []
        """The script and what was chosen since, in words, each with the number of rows when it had been done."""
        self.machine = SimulatedMachine(self.seed, chosen.settings(self.profile), traced=True)
        self._commands = Commands(self.machine, self._finish, self._turn_of_seed)
        try:
            broker = chosen.run(self.machine, stop)
            self._commands.take_over(broker)
            self.script_rows = self.machine.rows
            """Rows that the script wrote."""
            self._note(f"the script {os.path.basename(script)}" + (f", to row {stop:,}" if stop else ""))
            for item in choices[len(self.choices) :]:
                self.repeat(item)
        except BaseException:
            self.close()
            raise

    # -- steering

    def do(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a command; CallerError, in one sentence, for one that makes no sense.

        The answer has `rows`, how many the trace has now; `can_run`, the actors whose turn may come; `open`;
        and `result`, or `error` if the broker refused what was asked for.
        """
        arguments = dict(command)
        name = arguments.pop("do", None)
        if not isinstance(name, str):
            raise CallerError('a command names what to do, as {"do": "turn"}.')
        answer: dict[str, Any] = {}
        if name == "turn":
            self._turn(**_checked(arguments, actor=str, times=int))
        elif name == "settle":
            _checked(arguments)
            self._settle()
        else:
            answer = self._commands.carry_out(name, arguments, lambda: self.choices.append([name, arguments]))
        self._note(_in_words(name, arguments))
        return {**answer, **self.now()}

    def now(self) -> dict[str, Any]:
        """A summary of the run as JSON: rows so far, actors that can run, whether the broker is open, and the
        virtual time in seconds.
        """
        return {
            "rows": self.machine.rows,
            "can_run": self.machine.sim.can_run(),
            "open": self._commands.is_open,
            "seconds": round(self.machine.sim.monotonic_ns() / 1e9, 6),
        }

    def files_to_rot(self) -> list[str]:
        """The files of the data directory in which `bit_flip` may flip a bit."""
        return self._commands.with_messages()

    def _note(self, words: str) -> None:
        self.came.append((words, self.machine.rows))

    def _turn(self, actor: str | None = None, times: int = 1) -> None:
        if not 0 < times <= MOST_TURNS:
            raise CallerError(f"times is {times}; give 1 to {MOST_TURNS}.")
        for _ in range(times):
            if actor is None:
                self._any_turn()
            elif self.machine.sim.turn(actor):
                self.choices.append(actor)
            else:
                ready = ", ".join(self.machine.sim.can_run()) or "none"
                raise CallerError(f"{actor} has nothing to do now; a turn can be given to: {ready}.")

    def _any_turn(self) -> None:
        """Run one turn chosen by the seed; adjacent ones are recorded as one choice."""
        self._turn_of_seed()
        if self.choices and isinstance(self.choices[-1], int):
            self.choices[-1] += 1
        else:
            self.choices.append(1)

    def _turn_of_seed(self) -> None:
        try:
            self.machine.sim.turn()
        except Deadlock as nothing:
            raise CallerError("nothing can run, and no timer will change that; open the broker.") from nothing

    def _settle(self) -> None:
        """Run turns until no actor can run without a timer."""
        for _ in range(MOST_TURNS):
            if not self.machine.sim.can_run():
                return
            self._any_turn()

    def _finish(self, is_done: Any) -> bool:
        """Run turns until a command is done; False if it takes too many."""
        for _ in range(MOST_TURNS):
            if is_done():
                return True
            self._any_turn()
        return False

    def repeat(self, item: Item) -> None:
        """Repeat a recorded choice of a link."""
        if isinstance(item, bool) or not isinstance(item, (int, str, list)):
            raise CallerError("the link holds an invalid choice; was it cut?")
        if isinstance(item, int):
            for _ in range(min(item, MOST_TURNS * 10)):
                self._any_turn()
            self.came[-1] = self.came[-1][0], self.machine.rows
        elif isinstance(item, str):
            self._turn(item)
            self._note(_in_words("turn", {"actor": item}))
        else:
            name, arguments = item
            # its turns stand behind it as choices of their own
            self._commands.carry_out(
                name, arguments, lambda: self.choices.append([name, arguments]), finish=False
            )
            self._note(_in_words(name, arguments))

    # -- runs as links

    def link(self) -> str:
        """Encode the run as a text for a URL (letters, digits, - and _)."""
        run = [LINK_VERSION, self.script, self.profile, self.seed, self.choices]
        packed = zlib.compress(json.dumps(run, separators=(",", ":"), ensure_ascii=False).encode(), 9)
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    @classmethod
    def of_link(cls, link: str) -> Self:
        """Repeat the run that a link encodes; CallerError if the text is no link, or one of a later version."""
        script, profile, seed, choices = _run_of(link)
        return cls(script, seed=seed, profile=profile, choices=choices)

    @staticmethod
    def script_of_link(link: str) -> str:
        """The name of the script that a link's run begins with; CallerError as for `of_link`.  Nothing is run."""
        return _run_of(link)[0]

    def fork(self, row: int) -> Self:
        """Start another run that repeats this one up to the turn that writes this row; CallerError if there
        is no such row.
        """
        if not 0 < row <= self.machine.rows:
            raise CallerError(f"there is no row {row}; the run has rows 1 to {self.machine.rows}.")
        stop = row if row < self.script_rows else _stop_of(self.choices)
        begin: list[Item] = [["stop", {"row": stop}]] if stop else []
        other = type(self)(self.script, seed=self.seed, profile=self.profile, choices=begin)
        for item in self.choices[1 if _stop_of(self.choices) else 0 :]:
            for part in [1] * item if isinstance(item, int) else [item]:
                if other.machine.rows >= row:
                    return other
                other.repeat(part)
        return other

    def digest(self) -> str:
        """A hash of the whole trace: equal for equal runs."""
        digest = hashlib.sha256()
        for name, data in self.files().items():
            digest.update(f"{name} {len(data)} ".encode() + data)
        return digest.hexdigest()

    def files(self) -> dict[str, bytes]:
        """The trace so far, for `warrenmq.trace.reader.open_memory`."""
        assert self.machine.sink is not None
        return self.machine.sink.files()

    def close(self) -> None:
        """Free what the simulation holds."""
        self.machine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stop_of(choices: Sequence[Item]) -> int | None:
    """The row at which the script ends; None if it runs to its own end."""
    match choices:
        case [["stop", {"row": int(row)}], *_] if row > 0:
            return row
    return None


def _checked(arguments: Mapping[str, Any], **types: type) -> dict[str, Any]:
    """Check the arguments of a command and their types; CallerError if they are wrong."""
    for name, value in arguments.items():
        if name not in types:
            raise CallerError(f"there is no argument {name!r} here; there are: {', '.join(types) or 'none'}.")
        if type(value) is not types[name]:
            raise CallerError(f"{name} is {value!r}; give a value of type {types[name].__name__}.")
    return dict(arguments)


def _run_of(link: str) -> tuple[str, str, int, list[Item]]:
    """(script, profile, seed, choices) of a link."""
    try:
        packed = base64.urlsafe_b64decode(link + "=" * (-len(link) % 4))
        reader = zlib.decompressobj()
        run = json.loads(reader.decompress(packed, MOST_BYTES))
        version, script, profile, seed, choices = run
    except (ValueError, TypeError, binascii.Error, zlib.error) as error:
        raise CallerError("this is no link of a run; was it cut?") from error
    if version != LINK_VERSION:
        raise CallerError(f"this link is of version {version}, and this is version {LINK_VERSION}.")
    if not (isinstance(seed, int) and isinstance(choices, list) and isinstance(script, str)):
        raise CallerError("this is no link of a run; was it cut?")
    return script, profile, seed, choices


def _in_words(name: str, arguments: Mapping[str, Any]) -> str:
    """Say a choice in words, for the list of what was chosen."""
    told = {key: value for key, value in arguments.items() if key not in {"hold", "persistent", "requeue"}}
    actor = str(told.get("actor", "")).removeprefix("queue:")
    match name:
        case "turn":
            return f"a turn of {actor}" if actor else "a turn, by the seed"
        case "settle":
            return "until all is quiet"
        case "publish":
            where = told.get("exchange") or told.get("queue", "")
            return f"publish {told.get('count', 1)} of {told.get('size', 100):,} bytes to {where}"
        case "sleep":
            return f"{told['ms']:,} ms pass"
        case "kill":
            return f"kill {actor}"
        case "crash":
            return "kill -9"
        case "power_cut":
            return f"power cut before write {number}" if (number := told.get("operations")) else "power cut"
        case "disk_full":
            free = told.get("free", 0)
            return "room on the disk again" if free < 0 else f"{free:,} bytes of the disk are free"
        case "bit_flip":
            return f"a bit rots in {told.get('path', 'some file')}"
        case "memory":
            return f"{told['used']:,} bytes of memory in use"
    return " ".join([name, *map(str, told.values())])
