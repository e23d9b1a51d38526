"""A Lightning script whose limit is a number of epochs, logging with the CSVLogger."""

import argparse

import lightning as L
from lightning.pytorch.loggers import CSVLogger
from lit_model import Regression, Sums


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    options = parser.parse_args()
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=options.max_epochs, log_every_n_steps=4, logger=CSVLogger("lit-out"),
        enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Regression(lr=options.lr), datamodule=Sums())


if __name__ == "__main__":
    main()
