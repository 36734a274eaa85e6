"""The operations of `calls.py`, or of `training.py`, in torch: some processes, TensorPipe.

    python benchmarks/peer.py [--calls 2000] [--size 2] [--what operations]

Prints seconds by name, as JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import subprocess
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--what", default="operations", help="the module that measures")
    args = parser.parse_args()
    others = []
    if args.rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        others = [
            subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank)])
            for rank in range(1, args.size)
        ]

    import torch
    from torch.distributed import autograd, rpc

    torch.set_num_threads(1)
    measured = importlib.import_module(args.what)
    measured.use(torch, rpc, autograd)
    rpc.init_rpc(f"worker{args.rank}", rank=args.rank, world_size=args.size)
    if args.rank == 0:
        print(json.dumps(measured.measure(args.calls)))
    rpc.shutdown()
    for other in others:
        other.wait()


if __name__ == "__main__":
    main()
