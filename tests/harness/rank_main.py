"""Run pytest as one rank, with everything that it prints in a file of its own.

    mpiexec -n 4 python -m harness.rank_main FOLDER [arguments of pytest]

Launchers name the options for this differently, and mix the ranks' output without them.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path

import pytest

RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
OUTPUT_OF_RANK = "rank{}.txt"


def main() -> int:
    folder, *arguments = sys.argv[1:]
    # MPI is not up yet: only the launcher's variables tell the rank.
    name = next((os.environ[v] for v in RANK_VARIABLES if v in os.environ), f"-pid{os.getpid()}")
    path = Path(folder) / OUTPUT_OF_RANK.format(name)
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard_stream in (1, 2):
        os.dup2(output, standard_stream)
    # For a world that exceeds its time: pytest's own limits cover single tests only.
    faulthandler.register(signal.SIGUSR1, file=output, all_threads=True)
    # Ranks would write one another's list of last failures.
    cache = f"cache_dir={Path(folder) / f'cache{name}'}"
    return int(pytest.main([*arguments, "-o", cache]))


if __name__ == "__main__":
    sys.exit(main())
