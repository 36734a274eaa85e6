"""Remote procedure calls over MPI and what stands on them: autograd, modules, optimizers."""

from __future__ import annotations

import importlib
from typing import Any

# Autograd takes part in each worker's calls whether or not that worker's program uses it.
from tensorplay.distributed import autograd, rpc

__all__ = ["autograd", "is_available", "nn", "optim", "rpc"]


def is_available() -> bool:
    """Whether the distributed packages can be imported: always.

    MPI itself is needed only when `tensorplay.distributed.rpc.init_rpc` is called.
    """
    return True


def __getattr__(name: str) -> Any:
    if name in ("nn", "optim"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
