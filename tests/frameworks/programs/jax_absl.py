"""Flax and Optax with absl flags; parameters are saved as safetensors and by Orbax."""

import json
from pathlib import Path

import jax
import optax
import orbax.checkpoint as ocp
from absl import app, flags
from flax import linen as nn
from flax.training import train_state
from flax.traverse_util import flatten_dict
from safetensors.flax import save_file

FLAGS = flags.FLAGS
flags.DEFINE_string("workdir", "jax-out", "Where logs and checkpoints go.")
flags.DEFINE_integer("num_train_steps", 20, "Steps to train.")
flags.DEFINE_enum("orbax_only", "", ["", "once", "twice", "start"], "Save by Orbax alone; `start`: the first weights.")
flags.DEFINE_float("learning_rate", 0.01, "Step size.")


class Net(nn.Module):
    """A small perceptron."""

    @nn.compact
    def __call__(self, inputs):
        return nn.Dense(1)(nn.relu(nn.Dense(4)(inputs)))


@jax.jit
def train_step(state, inputs, targets):
    """One update; the loss and the norm of the gradient before it."""
    loss, grads = jax.value_and_grad(lambda p: ((state.apply_fn(p, inputs) - targets) ** 2).mean())(state.params)
    return state.apply_gradients(grads=grads), loss, optax.global_norm(grads)


def main(_):
    workdir = Path(FLAGS.workdir).absolute()
    workdir.mkdir(parents=True, exist_ok=True)
    key = jax.random.key(0)
    inputs = jax.random.normal(key, (64, 8))
    targets = inputs.sum(1, keepdims=True)
    net = Net()
    state = train_state.TrainState.create(
        apply_fn=net.apply, params=net.init(key, inputs), tx=optax.adam(FLAGS.learning_rate)
    )
    start, only = state.params, FLAGS.orbax_only
    if not only:
        save(state.params, workdir / "step_0")
    manager = ocp.CheckpointManager(workdir / "orbax", options=ocp.CheckpointManagerOptions(max_to_keep=2))
    if only in ("twice", "start"):
        manager.save(0, args=ocp.args.StandardSave(start))
    with (workdir / "metrics.jsonl").open("w", encoding="utf-8", buffering=1) as log:
        for step in range(1, FLAGS.num_train_steps + 1):
            state, loss, norm = train_step(state, inputs, targets)
            row = {"step": step, "loss": float(loss), "grad_norm": float(norm), "lr": FLAGS.learning_rate}
            log.write(json.dumps(row) + "\n")
    manager.save(FLAGS.num_train_steps, args=ocp.args.StandardSave(start if only == "start" else state.params))
    manager.wait_until_finished()
    if not only:
        save(state.params, workdir / f"step_{FLAGS.num_train_steps}")


def save(params, directory):
    """The parameters under their flat names."""
    directory.mkdir(exist_ok=True)
    save_file(flatten_dict(params, sep="."), directory / "params.safetensors")


if __name__ == "__main__":
    app.run(main)
