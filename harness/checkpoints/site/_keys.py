"""Names and shapes of a model's state, and how far a checkpoint's are the same."""

# mypy: ignore-errors

from dataclasses import dataclass

ANYWHERE = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""Parts of names that compilation and sharding put anywhere."""
LEADING = ("module.", "model.", "net.", "network.", "state_dict.", "app.", "_forward_module.")
"""Parts that wrappers put before all names."""
COUNTS = {"n_averaged"}
"""What an average of models counts beside them."""


@dataclass(frozen=True)
class Key:
    """A tensor of a model's state."""

    shape: tuple | None
    """None where only a first pass makes it."""
    dtype: object
    of: int
    """The same for the names of one tensor that is tied."""


def keys_of(one):
    """{name: Key} of a construction; {} where it fails."""
    import torch

    for device in ("meta", "cpu"):
        try:
            with torch.device(device):
                return keys_in(made_by(one))
        except BaseException:
            continue
    return {}


def keys_in(model):
    """{name: Key} of a model."""
    import torch
    from torch.nn.parameter import is_lazy

    state = model.state_dict(keep_vars=True)
    return {name: Key(shape=None if is_lazy(item) else tuple(item.shape), dtype=item.dtype, of=id(item))
            for name, item in state.items() if isinstance(item, torch.Tensor)}


def made_by(one):
    """A new model; one of Lightning may make its layers only when it is asked to."""
    model = one.make()
    configure = getattr(model, "configure_model", None)
    if callable(configure) and hasattr(model, "training_step"):
        configure()
    return model


def plain_states(state):
    """The state as it is, and without the parts that wrappers put into its names."""
    yield state
    bare = {_without(name): item for name, item in state.items()}
    yield bare
    while True:
        head = next((part for part in LEADING
                     if all(name.startswith(part) for name in bare if name not in COUNTS)), None)
        if head is None:
            return
        bare = {name.removeprefix(head): item for name, item in bare.items()}
        yield bare


def _without(name):
    for part in ANYWHERE:
        name = name.replace(part, "")
    return name


def differences(state, keys):
    """(missing, unexpected, of another shape); what a class can do without, or ties to another, is not missed."""
    held = {keys[name].of for name in keys.keys() & state.keys()}
    missing = {name for name in keys.keys() - state.keys()
               if not name.endswith("num_batches_tracked") and keys[name].of not in held}
    shapes = {name for name in keys.keys() & state.keys() if keys[name].shape not in (None, tuple(state[name].shape))}
    return missing, state.keys() - keys.keys() - COUNTS, shapes


def is_near(found, state, keys):
    """Whether at most one key in ten differs, or one of few, and two or more agree."""
    differing = len({keys[name].of for name in found[0]}) + len(found[1]) + len(found[2])
    agreeing = len(keys.keys() & state.keys()) - len(found[2])
    return agreeing >= 2 and differing <= max(1, len(keys) // 10)
