"""Two ranks on two hosts: started by run.sh, which pulls the cable meanwhile.

python stream.py            a stream of calls of all lengths, for six seconds
python stream.py --hosts    the two ranks are on different hosts
python stream.py --long     64 MiB leave while the sender's main thread computes
"""

from __future__ import annotations

import hashlib
import socket
import sys
import time
from typing import Any

import numpy as np

from tensorplay.distributed import rpc

SECONDS = 6.0
"""Of streaming: the cut, three seconds long, comes early in it."""
LIMIT = 60.0

received: list[int] = []


def receive(number: int, array: Any) -> tuple[int, str]:
    received.append(number)
    return number, digest(array)


def digest(array: Any) -> str:
    return hashlib.sha256(array).hexdigest()


def count_received() -> list[int]:
    return received


def stream() -> None:
    """Keep twenty calls under way in both directions; each is answered, once, by what it asked."""
    me = rpc.get_worker_info().id
    under_way: list[tuple[int, str, rpc.Future]] = []
    number = longest = 0
    start = last = time.monotonic()
    told = False
    while time.monotonic() < start + SECONDS or under_way:
        if time.monotonic() < start + SECONDS and len(under_way) < 20:
            array = np.full([10, 1000, 20_000, 400_000][number % 4], number % 256, np.uint8)
            future = rpc.rpc_async(1 - me, receive, args=(number, array), timeout=LIMIT)
            under_way.append((number, digest(array), future))
            number += 1
            continue
        asked, expected, future = under_way.pop(0)
        assert future.wait() == (asked, expected)
        now = time.monotonic()
        longest = max(longest, int(1000 * (now - last)))
        last = now
        if not told and now > start + 1:
            told = True
            print(f"rank {me} is in the middle", flush=True)
    assert sorted(rpc.rpc_sync(1 - me, count_received)) == list(range(number))
    assert longest > 2000, f"no answer was late by more than {longest} ms: was there a cut?"
    print(f"rank {me}: {number} calls, nothing was lost; longest pause {longest} ms", flush=True)


def check_hosts() -> None:
    names = {rpc.rpc_sync(to, socket.gethostname) for to in range(2)}
    assert len(names) == 2, f"both ranks are on {names}"


def send_long() -> None:
    """Start to send, then compute without calling anything of ours until the answer is there."""
    if rpc.get_worker_info().id:
        return
    array = np.arange(64 << 20, dtype=np.uint8)
    future = rpc.rpc_async(1, digest, args=(array,), timeout=LIMIT)
    deadline = time.monotonic() + LIMIT
    while not future.done():
        sum(range(10_000))
        assert time.monotonic() < deadline, "64 MiB did not leave while the main thread computed"
    assert future.wait() == digest(array)


def main() -> None:
    rpc.init_rpc()
    {"": stream, "--hosts": check_hosts, "--long": send_long}["".join(sys.argv[1:])]()
    rpc.shutdown()


if __name__ == "__main__":
    main()
