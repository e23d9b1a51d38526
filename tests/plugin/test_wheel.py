"""The wheel alone, in a fresh environment and another directory."""

from __future__ import annotations

import shlex
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from .conftest import TOY, Project

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tracked files, without leaving a build folder behind."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in tracked.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place, source], check=True)
    return next(place.glob("pytest_real_step-*.whl"))


def test_wheel_holds_one_package_with_all_its_data(wheel: Path) -> None:
    """One top-level package; suite, fixtures, bundled trainer, probe and schemas are in it; our own tests are not."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"harness"}
    for needed in (
        "harness/acceptance/test_real_step.py", "harness/fixtures/real_step.py", "harness/fixtures/trainers/tiny_lm.py",
        "harness/probe/site/sitecustomize.py", "harness/references/schemas/train-model.schema.json",
        "harness/references/vocabulary.md", "harness/py.typed",
    ):
        assert needed in names
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "harness").rglob("*.py")}
    assert not sources - set(names), "a module of the package is missing in [tool.setuptools] packages"


def test_wheel_works_from_elsewhere(wheel: Path, project: Project) -> None:
    """`pytest --pyargs harness.acceptance -m real_step --train-cmd ...` in another directory: GO."""
    place = project.path / "environment"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    # The dependencies come from the environment that runs this test; the package itself only from the wheel.
    packages = next(place.glob("lib/python*/site-packages"))
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(others) + "\n")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    work = project.path / "elsewhere"
    work.mkdir()
    command = shlex.join([str(python), str(TOY), "--max-steps", "20", "--log-dir", "events", "--save-dir", "saved"])
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "harness.acceptance", "-m", "real_step",
         "--train-cmd", command],
        cwd=work, text=True, capture_output=True, timeout=400, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Decision: GO" in done.stdout
    where = subprocess.run([python, "-c", "import harness; print(harness.__file__)"], cwd=work, text=True,
                           capture_output=True, check=True).stdout
    assert str(packages) in where
