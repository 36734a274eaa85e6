"""A worker that leaves without the others, while they still fetch what it has sent."""

from __future__ import annotations

from pathlib import Path

from harness.programs import program_runner


def test_what_was_sent_outlives_the_sender(tmp_path: Path) -> None:
    """Rank 0 is stopped until rank 1 has left Python, and fetches a long array after that."""
    run = program_runner(tmp_path)
    finished = run(
        """
        import signal, subprocess
        import numpy as np

        rpc.init_rpc()
        if rank == 1:
            peer = rpc.rpc_sync(0, os.getpid)
            subprocess.Popen(["sh", "-c", f"sleep 3; kill -CONT {peer}"])
            os.kill(peer, signal.SIGSTOP)
            rpc.rpc_async(0, np.sum, args=(np.ones(4_000_000),))
            rpc.shutdown(graceful=False)
        else:
            rpc.shutdown()
        say("ended well")
        """
    )
    assert finished.status == 0, finished.output
    assert finished.output.count("ended well") == 2, finished.output
