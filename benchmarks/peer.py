"""The operations of `calls.py` in torch: two processes on this machine, TensorPipe.

    python benchmarks/peer.py [--calls 2000]

Prints seconds by name, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys

import operations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rank", type=int, default=0)
    args = parser.parse_args()
    other = None
    if args.rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        other = subprocess.Popen([sys.executable, __file__, "--rank", "1"])

    import torch
    from torch.distributed import autograd, rpc

    torch.set_num_threads(1)
    operations.use(torch, rpc, autograd)
    rpc.init_rpc(f"worker{args.rank}", rank=args.rank, world_size=2)
    if args.rank == 0:
        print(json.dumps(operations.measure(args.calls)))
    rpc.shutdown()
    if other is not None:
        other.wait()


if __name__ == "__main__":
    main()
