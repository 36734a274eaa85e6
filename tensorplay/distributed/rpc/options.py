"""How a worker's RPC behaves."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tensorplay.distributed.settings import default_rpc_timeout

#: Seconds.
DEFAULT_RPC_TIMEOUT_SEC = 60.0
#: Stands for "the default of the options".
UNSET_RPC_TIMEOUT = -1.0


class BackendType(enum.Enum):
    """The ways in which messages can travel: MPI is the one there is."""

    MPI = "MPI"


@dataclass
class MPIRpcBackendOptions:
    """Options of `init_rpc`.

    Attributes:
        rpc_timeout: Seconds until a call without a timeout of its own fails; 0 for no limit.  By
            default what the environment says (``TENSORPLAY_RPC_TIMEOUT``), else 60.
        switch_interval: Seconds for which a thread may keep the interpreter lock while others want
            it (`sys.setswitchinterval`), from `init_rpc` to `shutdown`.  It bounds how long a
            worker whose main thread is busy in Python keeps a caller waiting.  None leaves it.

    >>> MPIRpcBackendOptions(rpc_timeout=5).rpc_timeout
    5
    """

    rpc_timeout: float = field(default_factory=default_rpc_timeout)
    switch_interval: float | None = 1e-4

    def problem(self) -> str | None:
        """What is wrong with the options; None if nothing is."""
        timeout: object = self.rpc_timeout
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout < 0:
            return f"rpc_timeout must be a number of seconds, 0 or more, got {timeout!r}"
        if self.switch_interval is not None and not self.switch_interval > 0:
            return f"switch_interval must be positive or None, got {self.switch_interval!r}"
        return None
