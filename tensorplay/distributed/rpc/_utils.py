"""Joining and leaving a running job, which MPI has no means for."""

from __future__ import annotations

from typing import Any, NoReturn


def _no_dynamic_groups(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        "workers cannot join or leave a running job: they are the ranks of an MPI communicator, "
        "all of which call init_rpc and shutdown together"
    )


_group_membership_management = _no_dynamic_groups
_update_group_membership = _no_dynamic_groups
