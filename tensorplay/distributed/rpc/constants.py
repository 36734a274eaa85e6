"""Numbers and texts that stand for defaults."""

from datetime import timedelta

#: Seconds until a call fails.
DEFAULT_RPC_TIMEOUT_SEC = 60.0
#: Stands for "the default of the options".
UNSET_RPC_TIMEOUT = -1.0
#: Where other backends look for each other; MPI ranks know each other.
DEFAULT_INIT_METHOD = "env://"
#: Seconds; no limit.
DEFAULT_SHUTDOWN_TIMEOUT = 0
#: What `TensorPipeRpcBackendOptions` says if it is told nothing; it bounds nothing then.
DEFAULT_NUM_WORKER_THREADS = 16
#: As good as no limit.
DEFAULT_PROCESS_GROUP_TIMEOUT = timedelta(milliseconds=2**31 - 1)
