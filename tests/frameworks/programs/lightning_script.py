"""A Lightning script whose limit is a number of epochs, logging with the CSVLogger."""

import argparse

import lightning as L
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger
from lit_model import Regression, Sums


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--stop_patience", type=int, default=0, help="overfit, with an EarlyStopping of this patience")
    parser.add_argument("--drops", default="", help="a part of names that its checkpoints lack")
    parser.add_argument("--keeps_start", action="store_true", help="its checkpoints hold the first weights")
    options = parser.parse_args()
    callbacks = []
    if options.stop_patience:
        callbacks = [EarlyStopping("val_loss", patience=options.stop_patience, verbose=True)]
    trainer = L.Trainer(
        callbacks=callbacks,
        accelerator="cpu", max_epochs=options.max_epochs, log_every_n_steps=4, logger=CSVLogger("lit-out"),
        enable_progress_bar=False,
    )  # fmt: skip
    model = Regression(lr=options.lr, drops=options.drops, keeps_start=options.keeps_start)
    trainer.fit(model, datamodule=Sums(is_noise=bool(options.stop_patience)))


if __name__ == "__main__":
    main()
