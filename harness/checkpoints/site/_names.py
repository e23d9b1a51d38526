"""Which entries of a checkpoint are weights of its model."""

# mypy: ignore-errors

import re

_STATE = re.compile(r"^(opt$|opt[_.]|opts$|.*(optim|sched|callback|scaler|loop|rng|random|best|metric|sampler))", re.I)
_MOMENTS = re.compile(r"(^|[./])(exp_avg|exp_avg_sq|max_exp_avg_sq|momentum_buffer|square_avg|opt_state)([./]|$)")


def is_weight(name):
    """Whether a name is of the model and not of an optimizer or a callback, whose best value may be infinite."""
    return not _STATE.match(re.split(r"[./]", name)[0]) and not _MOMENTS.search(name)


def is_floating(value):
    """Whether a tensor or array has floating elements, and any."""
    return "float" in str(value.dtype) and 0 not in tuple(value.shape) and not getattr(value, "is_meta", False)
