"""The profiler of all calls that a worker serves, which is not there."""

from __future__ import annotations

from typing import Any

from tensorplay.distributed.rpc.compatibility import no_profiler


class _server_process_global_profile:
    """Exists so that programs can import it.

    Raises:
        RuntimeError: It is made.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise no_profiler("_server_process_global_profile")
