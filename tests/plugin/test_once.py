"""One launch and one report, however pytest is started."""

from __future__ import annotations

import pytest

from .conftest import Project, reasons


@pytest.mark.parametrize(
    "flags", [(), ("-n0",), ("-n2",), ("-k", "test_exit"), ("-n2", "-k", "test_exit")], ids=" ".join)
def test_acceptance_launches_once(project: Project, flags: tuple[str, ...]) -> None:
    """Without xdist, with -n0 and -n2, and with one test selected: one launch, one GO."""
    done = project.run("--train-cmd", project.toy(), *flags)
    assert done.returncode == 0, done.stdout
    assert len(project.launches) == 1
    assert project.report()["decision"] == "GO"
    assert done.stdout.count("Training Complete") == 1
    assert not (project.out_dir / "attempts").exists()


@pytest.mark.parametrize("flags", [(), ("-n2",)], ids=" ".join)
def test_failing_trainer_is_launched_once(project: Project, flags: tuple[str, ...]) -> None:
    """A trainer that dies at its start is not started again by the next test."""
    done = project.run("--train-cmd", project.toy("--fail"), "--crash-window", "300", *flags)
    assert done.returncode == 1
    assert len(project.launches) == 1
    assert "crashed-in-window" in reasons(project.report())
    assert "RuntimeError: told to fail" in done.stdout


@pytest.mark.parametrize("flags", [(), ("-n2",)], ids=" ".join)
def test_command_that_cannot_start_is_reported_once(project: Project, flags: tuple[str, ...]) -> None:
    """A program that does not exist: nothing launched, one report that names it."""
    done = project.run("--train-cmd", "no-such-program --steps 3", *flags)
    assert done.returncode == 1
    report = project.report()
    assert report["decision"] == "NO-GO"
    assert "command-not-found" in reasons(report)
    assert done.stdout.count("Training Not Started") == 1


def test_collect_only_launches_nothing(project: Project) -> None:
    """--collect-only lists the tests and starts no trainer."""
    done = project.run("--train-cmd", project.toy(), "--collect-only")
    assert done.returncode == 0
    assert "test_updates_executed" in done.stdout
    assert project.launches == []
    assert not project.out_dir.exists()


def test_second_run_moves_the_first_aside(project: Project) -> None:
    """The earlier run's artifacts go to attempts/RUN_ID, its checkpoints stay."""
    project.run("--train-cmd", project.toy(), "--run-id", "first")
    earlier = (project.out_dir / "train-model.json").read_bytes()
    project.run("--train-cmd", project.toy(), "--run-id", "second")
    project.run("--train-cmd", project.toy(), "--run-id", "first")
    assert (project.out_dir / "attempts" / "first" / "train-model.json").read_bytes() == earlier
    assert sorted(path.name for path in (project.out_dir / "attempts").iterdir()) == ["first", "second"]
    assert project.report()["run_id"] == "first"
    assert len(project.launches) == 3


def test_run_option_judges_a_run_that_is_there(project: Project) -> None:
    """--run launches nothing and reaches the same verdict; the out-dir is not written."""
    project.run("--train-cmd", project.toy())
    before = {path: path.stat().st_mtime_ns for path in project.out_dir.rglob("*")}
    done = project.run("--run", "reports/train-run")
    assert done.returncode == 0, done.stdout
    assert "Decision: GO" in done.stdout
    assert len(project.launches) == 1
    assert {path: path.stat().st_mtime_ns for path in project.out_dir.rglob("*")} == before


def test_timeout_of_a_test_does_not_cut_the_run(project: Project) -> None:
    """pytest-timeout counts the test, not the training run in its fixture."""
    done = project.run("--train-cmd", project.toy("--sleep", "0.3"), "--timeout", "4")
    assert done.returncode == 0, done.stdout
    assert project.report()["training_duration_seconds"] > 4


def test_other_plugins_disturb_nothing(project: Project) -> None:
    """pytest-timeout, pytest-rerunfailures and xdist beside it: one launch, the same verdict, reruns or not."""
    done = project.run("--train-cmd", project.toy(), "-n2", "--timeout", "60", "--reruns", "2")
    assert done.returncode == 0, done.stdout
    failing = project.run("--train-cmd", project.toy("--fail"), "--timeout", "60", "--reruns", "1")
    assert failing.returncode == 1
    assert len(project.launches) == 2
