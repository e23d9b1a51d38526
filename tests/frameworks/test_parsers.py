"""What parsers other than argparse returned is seen: absl, click, typer, fire, tyro, jsonargparse, OmegaConf."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.parsing_programs import Program

PARSERS = {
    "absl": ("""
        from absl import app, flags
        flags.DEFINE_integer("hidden", 16, "")
        app.run(lambda words: print(flags.FLAGS.hidden))
        """, "--hidden", True),
    "click": ("""
        import click
        @click.command()
        @click.option("--hidden", default=16)
        def main(hidden): print(hidden)
        main()
        """, "--hidden", True),
    "typer": ("""
        import typer
        def main(hidden: int = 16): print(hidden)
        typer.run(main)
        """, "--hidden", True),
    "fire": ("""
        import fire
        def main(hidden=16, depth=2): print(hidden)
        fire.Fire(main)
        """, "--hidden", True),
    "tyro": ("""
        import dataclasses, tyro
        @dataclasses.dataclass
        class Config:
            hidden: int = 16
        print(tyro.cli(Config).hidden)
        """, "--hidden", False),
    "jsonargparse": ("""
        from jsonargparse import auto_cli
        def main(hidden: int = 16): print(hidden)
        auto_cli(main)
        """, "--hidden", False),
    "omegaconf": ("""
        from omegaconf import OmegaConf
        print(OmegaConf.merge({"hidden": 16}, OmegaConf.from_cli()).hidden)
        """, "hidden=", False),
}  # fmt: skip
NESTED = {
    "tyro": ("""
        import dataclasses, tyro
        @dataclasses.dataclass
        class Model:
            hidden_size: int = 16
        @dataclasses.dataclass
        class Config:
            model: Model = dataclasses.field(default_factory=Model)
        tyro.cli(Config)
        """, "--model.hidden-size"),
    "jsonargparse": ("""
        import dataclasses
        from jsonargparse import auto_cli
        @dataclasses.dataclass
        class Model:
            hidden_size: int = 16
        def main(model: Model = Model()): pass
        auto_cli(main)
        """, "--model.hidden_size"),
}  # fmt: skip


@pytest.mark.parametrize("name", PARSERS)
def test_value_that_the_parser_returned(name: str, tmp_path: Path) -> None:
    """The value, under the name that the override was placed by; whether it was given, where the parser tells."""
    code, flag, given = PARSERS[name]
    words = [f"{flag}128"] if flag.endswith("=") else [flag, "128"]
    (process,) = Program(tmp_path).run(flag.strip("="), code, *words)
    (parse,) = [parse for parse in process["parses"] if parse["parser"] == name.replace("typer", "click")]
    assert (str(parse["value"]["value"]), parse["dest"], parse["given"]) == ("128", "hidden", given)


@pytest.mark.parametrize("name", NESTED)
def test_nested_setting_is_found_by_its_dotted_name(name: str, tmp_path: Path) -> None:
    """As it was placed on the command line."""
    code, flag = NESTED[name]
    (process,) = Program(tmp_path).run(flag, code, flag, "128")
    assert {"value": 128} in [parse["value"] for parse in process["parses"]]
