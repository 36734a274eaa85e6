"""The table of settings: reading, refusing, comparing; and the page that lists it."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tensorplay.distributed import rpc
from tensorplay.distributed.settings import TABLE, Settings, disagreements, read

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def test_nothing_set_gives_the_defaults() -> None:
    assert read({"HOME": "/root"}) == (Settings(), [])


def test_every_setting_is_read() -> None:
    settings, problems = read(
        {
            "TENSORPLAY_LOG": "debug",
            "TENSORPLAY_DUMP_SIGNAL": "usr2",
            "TENSORPLAY_RPC_TIMEOUT": "2.5",
            "TENSORPLAY_THREAD_LEVEL": "serialized",
            "TENSORPLAY_TAG_LIMIT": "524287",
        }
    )
    assert problems == []
    assert settings == Settings("debug", int(signal.SIGUSR2), 2.5, "serialized", 524287)


def test_empty_counts_as_not_set() -> None:
    assert read({setting.variable: " " for setting in TABLE}) == (Settings(), [])


@pytest.mark.parametrize("text", ["none", "None"])
def test_no_dump_signal(text: str) -> None:
    assert read({"TENSORPLAY_DUMP_SIGNAL": text})[0].dump_signal is None


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TENSORPLAY_LOG", "loud"),
        ("TENSORPLAY_DUMP_SIGNAL", "SIGNONE"),
        ("TENSORPLAY_DUMP_SIGNAL", "SIGKILL"),
        ("TENSORPLAY_RPC_TIMEOUT", "soon"),
        ("TENSORPLAY_RPC_TIMEOUT", "-1"),
        ("TENSORPLAY_RPC_TIMEOUT", "nan"),
        ("TENSORPLAY_RPC_TIMEOUT", "inf"),
        ("TENSORPLAY_THREAD_LEVEL", "funneled"),
        ("TENSORPLAY_TAG_LIMIT", "32766"),
        ("TENSORPLAY_TAG_LIMIT", "many"),
    ],
)
def test_wrong_text_names_the_variable_and_what_it_must_be(variable: str, text: str) -> None:
    settings, (problem,) = read({variable: text})
    assert settings == Settings()
    assert problem.startswith(f"{variable} must be ")
    assert problem.endswith(f", got {text!r}")


def test_every_problem_is_told() -> None:
    _, problems = read({"TENSORPLAY_LOG": "a", "TENSORPLAY_RPC_TIMEOUT": "x", "TENSORPLAY_X": ""})
    assert len(problems) == 3


def test_unknown_variable_is_refused_with_a_close_match_and_the_list() -> None:
    _, (problem,) = read({"TENSORPLAY_RCP_TIMEOUT": "5"})
    assert "TENSORPLAY_RCP_TIMEOUT (did you mean TENSORPLAY_RPC_TIMEOUT?)" in problem
    for setting in TABLE:
        assert setting.variable in problem


def test_unknown_variable_without_a_close_match() -> None:
    _, (problem,) = read({"TENSORPLAY_QQQQQQQQQQQQQQQQQ": "5"})
    assert "did you mean" not in problem
    assert "TENSORPLAY_LOG" in problem


def test_what_need_not_agree_may_differ() -> None:
    assert disagreements([Settings(log="debug"), Settings(dump_signal=None)]) == []


def test_what_must_agree_is_named_with_ranks_and_values() -> None:
    (problem,) = disagreements([Settings(), Settings(tag_limit=40000), Settings()])
    assert problem == ("TENSORPLAY_TAG_LIMIT is what MPI allows on ranks 0, 2 but 40000 on rank 1")


def test_options_of_the_program_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORPLAY_RPC_TIMEOUT", "7")
    assert rpc.MPIRpcBackendOptions().rpc_timeout == 7
    assert rpc.MPIRpcBackendOptions(rpc_timeout=60.0).rpc_timeout == 60
    monkeypatch.delenv("TENSORPLAY_RPC_TIMEOUT")
    assert rpc.MPIRpcBackendOptions().rpc_timeout == 60


def test_page_lists_the_table() -> None:
    rows = re.findall(r"^\| `(TENSORPLAY_\w+)` \|(.*)\|(.*)\|(.*)\|(.*)\|$", PAGE.read_text(), re.M)
    listed = [tuple(cell.strip() for cell in row) for row in rows]
    assert listed == [
        (
            setting.variable,
            setting.kind,
            setting.default,
            "yes" if setting.must_agree else "no",
            setting.meaning,
        )
        for setting in TABLE
    ]
