"""A forward pass through a model of which only its layers are known: inputs that its first layer takes.

An input that the model refuses proves nothing. Neither do values that are not finite: a healthy model may give log 0
for an input that it never saw. That is a doubt where the same class gives finite values for it before training.
"""

# mypy: ignore-errors

import inspect
import itertools
import math

SIDES = (28, 32, 64, 96, 128, 224, 16, 8)
LENGTHS = (8, 4, 16, 2, 1, 32, 64, 128)
EXAMPLES = ("example_input_array", "example_inputs", "dummy_inputs")
MAX_TRIES = 60
MAX_LAYERS = 3


def forward(model, make, answer):
    """Set forward_ok of the answer: True, or None with a note where nothing was proved.

    `model` holds the checkpoint's weights; `make()` gives an untrained one.
    """
    import torch

    model.eval()
    torch.manual_seed(0)
    why = "its first layer tells no input"
    for inputs in itertools.islice(inputs_of(model), MAX_TRIES):
        try:
            values = values_at(model, inputs)
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"
            continue
        if not values:
            answer.note("a forward pass was made, and gave no floating tensor")
            return
        told(make, inputs, values, answer)
        return
    answer.note(f"no forward pass was made: no guessed input fits: {why}"[:400])


def told(make, inputs, values, answer):
    """What the values of one pass say."""
    import torch

    shapes = [tuple(item.shape) for item in inputs if isinstance(item, torch.Tensor)]
    if all(bool(torch.isfinite(value).all()) for value in values):
        answer.fields["forward_ok"] = True
        answer.note(f"a forward pass on a guessed input of shape {', '.join(map(str, shapes))} is finite")
    elif is_finite_untrained(make, inputs):
        answer.doubt("a forward pass on a guessed input gives values that are not finite; an untrained model of its "
                     "class gives finite ones")
    else:
        answer.note("a forward pass on a guessed input gives values that are not finite; its weights may be well")


def is_finite_untrained(make, inputs):
    """Whether an untrained model gives finite values alone."""
    import torch

    try:
        values = values_at(make().eval(), inputs)
    except BaseException:
        return False
    return bool(values) and all(bool(torch.isfinite(value).all()) for value in values)


def values_at(model, inputs):
    """Every floating tensor of the output."""
    import torch
    from _torch_files import tensors_of

    with torch.inference_mode():
        output = model(**inputs[0]) if len(inputs) == 1 and isinstance(inputs[0], dict) else model(*inputs)
    if not isinstance(output, (torch.Tensor, dict, list, tuple)) and hasattr(output, "__dict__"):
        output = dict(vars(output))
    return [value for _, value in tensors_of({"output": output}) if value.is_floating_point() and value.numel()]


def inputs_of(model):
    """Tuples of arguments to try, the likeliest first."""
    import torch

    for name in EXAMPLES:
        example = getattr(model, name, None)
        if example is not None and not callable(example):
            yield example if isinstance(example, tuple) else (example,)
    count = _needed(model)
    for tensor in guesses(model):
        yield (tensor,) * count
        if count > 1:
            # A time step or a length beside it, and a mask.
            yield tensor, *[torch.ones(tensor.shape[0], dtype=torch.int64)] * (count - 1)
            yield tensor, *[torch.ones(tensor.shape, dtype=torch.bool)] * (count - 1)
    # What is optional may be what it is called with: forward(x=None, ids=None).
    if not count:
        for tensor in guesses(model):
            yield (tensor,)


def _needed(model):
    """How many arguments its forward has to get."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return 1
    plain = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    needed = sum(item.default is item.empty for item in plain)
    return needed if plain else 1


def guesses(model):
    """Tensors that the first layers which tell their input take; the order of layers is only that of their making."""
    import torch
    from torch import nn

    ids = [layer.num_embeddings for layer in model.modules() if isinstance(layer, nn.Embedding)]
    floating = next((item.dtype for item in model.parameters() if item.is_floating_point()), torch.float32)
    told_by = 0
    for layer in model.modules():
        if isinstance(layer, nn.Embedding):
            shapes = [(1, length) for length in LENGTHS] + [(8,), (1,)]
            found = [torch.randint(0, max(1, min(ids)), shape) for shape in shapes]
        elif isinstance(layer, nn.EmbeddingBag):
            found = [torch.randint(0, layer.num_embeddings, (2, 4))]
        else:
            found = [torch.randn(shape).to(floating) for shape in _shapes(layer)]
        yield from found
        told_by += bool(found)
        if told_by == MAX_LAYERS:
            return


def _shapes(layer):
    """Shapes of floating input that a layer takes, as its own or through a flattening before it; () for none."""
    from torch import nn
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.conv import _ConvNd

    if isinstance(layer, _ConvNd):
        channels, count = layer.in_channels or layer.weight.shape[1] * layer.groups, len(layer.kernel_size)
        sides = LENGTHS[::-1] if count == 1 else SIDES if count == 2 else (16, 8, 32)
        return [(1, channels, *[side] * count) for side in sides] + [(2, *[side] * count) for side in sides[:2]]
    if isinstance(layer, nn.Linear):
        # A lazy layer knows its width only from its weights.
        return _flat(layer.weight.shape[1])
    if isinstance(layer, (nn.RNNBase, nn.RNNCellBase)):
        return [(2, 8, layer.input_size), (2, layer.input_size)]
    if isinstance(layer, nn.MultiheadAttention):
        return [(2, 8, layer.embed_dim)]
    if isinstance(layer, nn.LayerNorm):
        return [(2, *layer.normalized_shape), (2, 8, *layer.normalized_shape)]
    if isinstance(layer, _BatchNorm):
        return [(2, layer.num_features), (2, layer.num_features, 8), (2, layer.num_features, 32, 32)]
    return _flat(layer.in1_features) if isinstance(layer, nn.Bilinear) else []


def _flat(width):
    """Rows of a width, a sequence of them, and images that are flattened to it."""
    shapes = [(2, width), (2, 8, width), (width,)]
    for channels in (1, 3):
        side = math.isqrt(width // channels)
        if side * side * channels == width:
            shapes.append((2, channels, side, side))
    return shapes
