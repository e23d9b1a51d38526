"""A LightningCLI: `python lightning_cli.py fit --trainer.max_steps=30`."""

from lightning.pytorch.cli import LightningCLI
from lit_model import Regression, Sums


def main():
    LightningCLI(Regression, Sums, trainer_defaults={"accelerator": "cpu", "enable_progress_bar": False})


if __name__ == "__main__":
    main()
