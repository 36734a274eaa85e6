"""Settings that a program takes from its environment: one table of all ``TENSORPLAY_*`` variables.

The table is the class `Settings`: each field names its variable, how its text is read, what it is
without one, and what it means.  ``docs/settings.md`` lists the same.

Reading never raises: what is wrong is told, so that `init_rpc` can raise it on all ranks together.

Pure: knows nothing of MPI, messages or workers.
"""

from __future__ import annotations

import difflib
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

PREFIX = "TENSORPLAY_"
#: Every MPI library allows tags up to this one at least.
LEAST_TAG_LIMIT = 32767


class Setting(NamedTuple):
    """One row of the table.

    Attributes:
        name: The field of `Settings`.
        variable: The environment variable.
        kind: What its text must be, in words.
        default: What stands for "not set", as text; it need not be valid as a value.
        must_agree: Whether all ranks must have the same.
        meaning: What it does.
        parse: Makes the value of the text; raises ValueError.
    """

    name: str
    variable: str
    kind: str
    default: str
    must_agree: bool
    meaning: str
    parse: Callable[[str], Any]


def _choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return parse


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError
    return seconds


def _signal(text: str) -> int | None:
    if text.lower() == "none":
        return None
    name = text.upper()
    number = signal.Signals.__members__.get(name if name.startswith("SIG") else f"SIG{name}")
    if number is None or number in (signal.SIGKILL, signal.SIGSTOP):
        raise ValueError
    return int(number)


def _tag_limit(text: str) -> int:
    limit = int(text)
    if limit < LEAST_TAG_LIMIT:
        raise ValueError
    return limit


def _setting(
    value: Any,
    *,
    variable: str,
    kind: str,
    default: str,
    must_agree: bool,
    meaning: str,
    parse: Callable[[str], Any],
) -> Any:
    row = (PREFIX + variable, kind, default, must_agree, meaning, parse)
    return field(default=value, metadata={"row": row})


@dataclass(frozen=True)
class Settings:
    """What the environment says.

    Attributes:
        log: Level of the logger ``tensorplay``.
        dump_signal: Number of the signal that prints what every rank is doing; None for none.
        rpc_timeout: Seconds; the default of `MPIRpcBackendOptions.rpc_timeout`.
        thread_level: Thread level that MPI must have; None if any that suffices will do.
        tag_limit: Highest tag to use; None for what MPI allows.
    """

    log: str = _setting(
        "warning",
        variable="LOG",
        kind="off, warning, info or debug",
        default="warning",
        must_agree=False,
        meaning=(
            "Level of the logger `tensorplay`, which writes to stderr. `debug` prints a line for "
            "each message between ranks"
        ),
        parse=_choice("off", "warning", "info", "debug"),
    )
    dump_signal: int | None = _setting(
        int(signal.SIGUSR1),
        variable="DUMP_SIGNAL",
        kind="the name of a signal, or none",
        default="SIGUSR1",
        must_agree=False,
        meaning="Sent to any rank, this signal has every rank print what it is doing",
        parse=_signal,
    )
    rpc_timeout: float = _setting(
        60.0,
        variable="RPC_TIMEOUT",
        kind="a number of seconds, 0 for no limit",
        default="60",
        must_agree=True,
        meaning=(
            "Seconds until a call fails that has no timeout of its own. A program that gives "
            "`rpc_timeout` in its options wins"
        ),
        parse=_seconds,
    )
    thread_level: str | None = _setting(
        None,
        variable="THREAD_LEVEL",
        kind="serialized or multiple",
        default="either",
        must_agree=False,
        meaning=(
            "Thread level to ask MPI for. `serialized` stands in for a library that gives no more; "
            "`multiple` refuses one that gives less"
        ),
        parse=_choice("serialized", "multiple"),
    )
    tag_limit: int | None = _setting(
        None,
        variable="TAG_LIMIT",
        kind=f"a number, {LEAST_TAG_LIMIT} or more",
        default="what MPI allows",
        must_agree=True,
        meaning="Highest message tag to use; stands in for a library that allows fewer",
        parse=_tag_limit,
    )


#: All settings.
TABLE: tuple[Setting, ...] = tuple(
    Setting(item.name, *item.metadata["row"]) for item in fields(Settings)
)


def read(environment: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """The settings of an environment, and what is wrong with it; a wrong one has its default.

    A variable that is set to nothing counts as not set.

    >>> settings, problems = read({"TENSORPLAY_RPC_TIMEOUT": "5"})
    >>> settings.rpc_timeout, problems
    (5.0, [])
    >>> read({"TENSORPLAY_RPC_TIMEOUT": "soon"})[1]
    ["TENSORPLAY_RPC_TIMEOUT must be a number of seconds, 0 for no limit, got 'soon'"]
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    for setting in TABLE:
        text = environment.get(setting.variable, "").strip()
        if not text:
            continue
        try:
            values[setting.name] = setting.parse(text)
        except ValueError:
            problems.append(f"{setting.variable} must be {setting.kind}, got {text!r}")
    problems += _unknown(environment)
    return Settings(**values), problems


def _unknown(environment: Mapping[str, str]) -> list[str]:
    known = [setting.variable for setting in TABLE]
    problems = []
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in known:
            close = difflib.get_close_matches(variable, known, n=1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            problems.append(
                f"there is no setting {variable}{meant}; the settings are {', '.join(known)}"
            )
    return problems


def disagreements(everybody: Sequence[Settings]) -> list[str]:
    """The settings that must be the same on all ranks and are not; `everybody` is in their order.

    >>> disagreements([Settings(), Settings(rpc_timeout=5.0), Settings()])
    ['TENSORPLAY_RPC_TIMEOUT is 60.0 on ranks 0, 2 but 5.0 on rank 1']
    """
    problems = []
    size = len(everybody)
    for setting in TABLE:
        if not setting.must_agree:
            continue
        ranks: dict[Any, list[int]] = {}
        for rank, settings in enumerate(everybody):
            ranks.setdefault(getattr(settings, setting.name), []).append(rank)
        if len(ranks) > 1:
            who = " but ".join(
                f"{setting.default if value is None else value} on {name_ranks(having, size)}"
                for value, having in ranks.items()
            )
            problems.append(f"{setting.variable} is {who}")
    return problems


def name_ranks(ranks: Sequence[int], size: int) -> str:
    """Some of `size` ranks, for people.

    >>> name_ranks([1], 3), name_ranks([0, 2], 3), name_ranks([0, 1], 2)
    ('rank 1', 'ranks 0, 2', 'all ranks')
    """
    if len(ranks) == size > 1:
        return "all ranks"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def default_rpc_timeout() -> float:
    """The timeout of calls where the program gives none (seconds)."""
    return read(os.environ)[0].rpc_timeout
