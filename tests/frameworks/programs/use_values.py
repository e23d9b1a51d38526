"""What --reload-with calls with checkpoints of save_values.py: the models of Keras, Flax and Orbax, used."""

from pathlib import Path

import numpy as np


def keras_weights(path):
    """The weights put into the model of the program; its loss on data of its own."""
    import keras

    layers = [keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.BatchNormalization()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.load_weights(path)
    return {"val_loss": keras.ops.mean(model(np.ones((2, 4), "float32")) ** 2)}


def flax(path):
    """Parameters of a msgpack file, applied."""
    from flax import serialization

    return _applied(serialization.msgpack_restore(Path(path).read_bytes())["params"])


def orbax(path):
    """Parameters of a directory of Orbax, applied."""
    import orbax.checkpoint as ocp

    return _applied(ocp.PyTreeCheckpointer().restore(path)["params"])


def _applied(params):
    from flax import linen as nn

    return {"eval_loss": (nn.Dense(3).apply(params, np.ones((2, 4))) ** 2).mean()}
