"""Overrides and caps as a user gives them: announced, placed once, in the evidence with their effect."""

from __future__ import annotations

from .conftest import Project, reasons


def test_override_is_announced_placed_and_seen_to_take_effect(project: Project) -> None:
    """--hp lr=0.05 becomes the program's own flag; the logged rate shows it; the evidence holds both."""
    done = project.run("--train-cmd", project.toy(), "--hp", "learning_rate=0.05")
    assert done.returncode == 0, done.stdout
    assert "HP override: learning_rate=0.05 (injected as --lr 0.05)" in done.stdout
    report = project.report()
    assert report["hyperparameters"] == {"learning_rate": 0.05}
    override = report["evidence"]["command"]["overrides"][0]
    assert (override["key"], override["value"], override["kind"]) == ("learning_rate", "0.05", "semantic")
    assert abs(override["effective_value"] - 0.05) < 1e-6
    assert report["train_cmd"].endswith("--lr 0.05")


def test_override_that_has_no_place_is_refused_before_launch(project: Project) -> None:
    """No flag of that name: NO-GO, nothing launched, and what to give instead."""
    done = project.run("--train-cmd", project.toy(), "--hp", "warp=9")
    assert done.returncode == 1
    assert project.launches == []
    assert "override-not-placed" in reasons(project.report())
    assert "--hp-flag warp=" in done.stdout


def test_remedy_names_the_flag_that_is_near(project: Project) -> None:
    """The exact words, in the report and on the terminal."""
    done = project.run("--train-cmd", project.toy(), "--hp", "sleeep=9")
    (reason,) = [item for item in project.report()["evidence"]["reasons"] if item["code"] == "override-not-placed"]
    assert reason["remedy"] == "give --hp-flag sleeep=--sleep"
    assert "Remedy: give --hp-flag sleeep=--sleep" in done.stdout


def test_ini_file_may_hold_several_overrides(project: Project) -> None:
    """real_step_hp is a list, one a line."""
    (project.path / "pytest.ini").write_text("[pytest]\nreal_step_hp =\n    lr=0.05\n    sleep=0.001\n")
    done = project.run("--train-cmd", project.toy())
    assert done.returncode == 0, done.stdout
    assert project.report()["hyperparameters"] == {"lr": 0.05, "sleep": 0.001}


def test_cap_by_the_program_is_its_own_flag(project: Project) -> None:
    """--max-steps lowers the program's limit in place, with a note about its schedule."""
    done = project.run("--train-cmd", project.toy(), "--max-steps", "7")
    assert done.returncode == 0, done.stdout
    report = project.report()
    assert (report["total_steps"], report["evidence"]["command"]["stopped_by"]) == (7, None)
    assert "--max-steps 7" in report["train_cmd"]
    assert any(finding["title"] == "cap-changes-schedule" for finding in report["findings"])


def test_cap_by_the_harness_leaves_the_command_alone(project: Project) -> None:
    """--cap harness stops the run at the step and keeps the program's schedule."""
    done = project.run("--train-cmd", project.toy("--max-steps", "2000", "--sleep", "0.05"), "--max-steps", "10",
                       "--cap", "harness")
    report = project.report()
    assert (report["terminal_state"], report["evidence"]["command"]["stopped_by"]) == ("SUCCEEDED", "cap"), done.stdout
    assert 10 <= report["total_steps"] < 2000
    assert "--max-steps 2000" in report["train_cmd"]
