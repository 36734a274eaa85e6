"""Results that are not here yet, with `torch.futures`' names.

They are those of `tensorplay.distributed.rpc.rpc_async`, or completed by hand; no MPI is needed.

>>> from tensorplay.futures import Future
>>> future = Future()
>>> future.set_result(3)
>>> future.then(lambda f: f.wait() ** 2).wait()
9
"""

from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.waiting import collect_all, wait_all

__all__ = ["Future", "collect_all", "wait_all"]
