"""Checkpoints of Keras, Flax and Orbax, written by their own libraries: `save_values.py KIND DIRECTORY`.

For keras, keras-weights, flax and orbax: a start (step 0), one whose weights moved (5), one that equals the start (9),
with an optimizer's state that differs each time, and one with a NaN (20).
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")


def keras_kinds(kind, place):
    """A compiled model with BatchNorm, whose optimizer has stepped."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.BatchNormalization()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    start = [np.array(value) for value in model.get_weights()]
    for step in (0, 5, 9, 20):
        model.fit(np.random.randn(16, 4), np.random.randn(16, 1), epochs=1, verbose=0)
        if step != 5:
            # BatchNorm's own statistics stay as training left them.
            model.set_weights([now if index in (4, 5) and step else old
                               for index, (old, now) in enumerate(zip(start, model.get_weights(), strict=True))])
        if step == 20:
            model.set_weights([np.full_like(value, np.nan) for value in start])
        if kind == "keras":
            model.save(place / f"model_step_{step}.keras")
        else:
            model.save_weights(place / f"model_step_{step}.weights.h5")


def flax_kinds(kind, place):
    """A perceptron's parameters with the state of Adam."""
    import jax
    import numpy as np
    import optax
    from flax import linen as nn
    from flax import serialization
    from flax.training import train_state

    net = nn.Dense(3)
    state = train_state.TrainState.create(
        apply_fn=net.apply, params=net.init(jax.random.key(0), np.ones((2, 4))), tx=optax.adam(0.1))
    start = state.params
    for step in (0, 5, 9, 20):
        if step:
            state = state.apply_gradients(grads=jax.tree.map(np.ones_like, state.params))
        params = state.params if step == 5 else start
        if step == 20:
            params = jax.tree.map(lambda value: value * np.nan, start)
        tree = {"params": params, "opt_state": state.opt_state, "step": step}
        if kind == "flax":
            (place / f"checkpoint_{step}.msgpack").write_bytes(serialization.to_bytes(tree))
        else:
            import orbax.checkpoint as ocp

            ocp.PyTreeCheckpointer().save(place.absolute() / f"checkpoint_{step}", tree)


if __name__ == "__main__":
    directory = Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    (keras_kinds if sys.argv[1].startswith("keras") else flax_kinds)(sys.argv[1], directory)
