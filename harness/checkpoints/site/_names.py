"""Which entries of a checkpoint are weights of its model."""

# mypy: ignore-errors

import re

_STATE = re.compile(r"^(opt$|opt[_.]|opts$|.*(optim|sched|callback|scaler|loop|rng|random|best|metric|sampler))", re.I)
_MOMENTS = re.compile(r"(^|[./])(exp_avg|exp_avg_sq|max_exp_avg_sq|momentum_buffer|square_avg|opt_state)([./]|$)")
_RECORD = re.compile(r"((train|training|val|valid|validation|test|eval|epoch|step|min|lowest)_)?loss(es)?(_history)?|"
                     r"history|metrics|best(_\w+)?", re.I)
_HISTORY = re.compile(r"((train|training|val|valid|validation|test|eval|epoch|step)_)?(losses|history|loss_history|"
                      r"metrics)", re.I)
_LEARNED = re.compile(r"weight|bias|kernel|scale|gamma|beta|embedding", re.I)


def is_weight(name):
    """Whether a name is of the model and not of an optimizer, a callback, whose best value may be infinite, or a
    history of losses."""
    return not _STATE.match(re.split(r"[./]", name)[0]) and not _MOMENTS.search(name) and not is_record(name)


def is_record(name):
    """As harness/checkpoints/tensors.py has it."""
    *places, leaf = re.split(r"[./]", name)
    return _RECORD.fullmatch(leaf) is not None or (
        _LEARNED.fullmatch(leaf) is None and any(_HISTORY.fullmatch(place) for place in places))


def is_mask(name, array):
    """Whether an array with infinities has them by design: what is called a mask, without NaN; else -inf beside one
    other value. As harness/checkpoints/tensors.py has it."""
    import numpy as np

    leaf = re.split(r"[./]", name)[-1].lower()
    if array.dtype.kind != "f" or np.isnan(array).any():
        return False
    if "mask" in leaf:
        return True
    finite = array[np.isfinite(array)]
    return (leaf != "weight" and (leaf != "bias" or array.ndim > 1) and not np.isposinf(array).any()
            and finite.size > 0 and bool(finite.min() == finite.max()))


def is_floating(value):
    """Whether a tensor or array has floating elements, and any."""
    return "float" in str(value.dtype) and 0 not in tuple(value.shape) and not getattr(value, "is_meta", False)
