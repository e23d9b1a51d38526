"""Keras 3 on torch, logging with CSVLogger and saving with ModelCheckpoint."""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--stop-patience", type=int, default=0, help="overfit, with an EarlyStopping of this patience")
    parser.add_argument("--save-once", choices=("", "end", "start"), default="", help="one file after the fit")
    options = parser.parse_args()
    keras.utils.set_random_seed(0)
    os.makedirs("keras-out", exist_ok=True)  # noqa: PTH103
    inputs = np.random.randn(64, 8).astype("float32")
    layers = [keras.layers.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    targets, own = inputs.sum(1, keepdims=True), []
    if options.stop_patience:
        targets = np.random.randn(64, 1).astype("float32")
        own = [keras.callbacks.EarlyStopping(monitor="val_loss", patience=options.stop_patience, verbose=1)]
    start = model.get_weights()
    model.compile(keras.optimizers.SGD(options.lr), "mse")
    model.fit(
        inputs, targets, epochs=options.epochs, batch_size=16, validation_split=0.25, verbose=2,
        callbacks=[
            *own,
            keras.callbacks.CSVLogger("keras-out/log.csv"),
            *([] if options.save_once else [keras.callbacks.ModelCheckpoint("keras-out/e{epoch:02d}.keras")]),
        ],
    )  # fmt: skip
    if options.save_once:
        if options.save_once == "start":
            model.set_weights(start)
        model.save("keras-out/final.keras")


if __name__ == "__main__":
    main()
