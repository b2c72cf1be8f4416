"""Environments that hold the built wheel of this checkout, and programs started in them."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("npuflow", "pyproject.toml", "README.md", "LICENSE")
Arg = str | os.PathLike[str]


@dataclass(frozen=True)
class Environment:
    """A virtual environment with npuflow from a wheel. Its programs see neither the checkout nor
    the settings of whoever runs the tests."""

    folder: Path

    @property
    def bin(self) -> Path:
        """The folder of the environment's programs."""
        return self.folder / "bin"

    def variables(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment variables of its programs."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NPUFLOW", "PYTHON", "PYTEST"))}
        own = {"PATH": f"{self.bin}{os.pathsep}{kept['PATH']}", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
        return {**kept, **own, **(extra or {})}

    def run(
        self,
        program: str,
        *arguments: Arg,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment and returns its exit code and what it printed, as text.
        With `check`, an exit code other than 0 fails the test and shows what was printed."""
        done = subprocess.run(
            [str(self.bin / program), *map(str, arguments)],
            cwd=cwd or self.folder,
            env=self.variables(env),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        if check:
            shown = " ".join([program, *map(str, arguments)])
            assert done.returncode == 0, f"$ {shown}\n[{done.returncode}]\n{done.stdout}\n{done.stderr}"
        return done

    def npuflow(self, *arguments: Arg, **options: Any) -> subprocess.CompletedProcess[str]:
        """`npuflow ARGUMENTS...`; options as of `run`."""
        return self.run("npuflow", *arguments, **options)

    def python(self, code: str, *arguments: Arg, **options: Any) -> subprocess.CompletedProcess[str]:
        """`python -c CODE ARGUMENTS...`; options as of `run`."""
        return self.run("python", "-c", code, *arguments, **options)

    def popen(
        self, program: str, *arguments: Arg, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """A program of the environment, started as leader of a process group of its own. Standard output
        and standard error come mixed through `.stdout`."""
        return subprocess.Popen(
            [str(self.bin / program), *map(str, arguments)],
            cwd=cwd or self.folder,
            env=self.variables(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a file lock, so that workers of pytest-xdist make what they share once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, filled by `make` where no process of this test run has filled it."""
    with locked(folder.with_suffix(".lock")):
        done = folder / "complete"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            make(folder)
            done.touch()
    return folder


def build_wheel(into: Path, version: str | None = None) -> Path:
    """A wheel of this checkout, or of the same sources under another version number."""
    sources = into / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
            shutil.copytree(ROOT / name, sources / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, sources / name)
    if version is not None:
        for name, line in (("pyproject.toml", "version"), ("npuflow/__init__.py", "__version__")):
            text, n = re.subn(rf'(?m)^{line} = ".*"$', f'{line} = "{version}"', (sources / name).read_text())
            assert n == 1, f"{name} states no version"
            (sources / name).write_text(text)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(into), str(sources)], check=True, timeout=300)
    (wheel,) = into.glob("npuflow-*.whl")
    return wheel


def install(folder: Path, wheel: Path, *, dependencies: bool = False) -> Environment:
    """A virtual environment with the wheel. Dependencies are those of the environment that runs the tests
    (its own npuflow is not seen: an editable one is found through a file that only its own site reads),
    or are installed anew, as the wheel states them."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    environment = Environment(folder)
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    environment.run("python", *pip, *([] if dependencies else ["--no-deps"]), wheel, timeout=900)
    if not dependencies:
        site = environment.python("import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        below = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *outer_sites()}
        (Path(site) / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(below)))
    home = environment.python("import npuflow; print(npuflow.__file__)").stdout
    assert home.startswith(str(folder)), f"npuflow is imported from {home}"
    return environment


def outer_sites() -> set[str]:
    """Further folders of packages that this process reads, such as those of an environment below its own."""
    return {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
