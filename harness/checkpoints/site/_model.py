"""A checkpoint of plain tensors in the class that its program trained: found by its keys, loaded, passed forward.

A class counts where it has exactly the checkpoint's keys and shapes. What is found here may only prove: how the program
makes its model and what it chooses to save is guessed, so that a difference is a doubt and never a failure.
"""

# mypy: ignore-errors

import ast
import json
import os

from _answer import NotAttempted
from _confine import confine
from _constructions import classes_of, constructions_of, from_mappings
from _forward import forward
from _holes import filled
from _keys import differences, is_near, keys_of, made_by, plain_states
from _names import is_weight
from _program import load_sources

CONFIGS = ("config", "hparams", "hyper_parameters", "args", "model_args", "model_config", "kwargs", "cfg", "params")
"""What a checkpoint calls the arguments of its model."""
CONFIG_FILES = ("config.json", "model_config.json", "hparams.json", "args.json", "params.json")
MAX_STATES = 4
MAX_DEPTH = 3
MAX_CONFIG_BYTES = 1 << 20


def load_into_class(request, answer):
    """Into the class that is named, `model_class`; into one that is found where that proves nothing.

    A class is tried out only where nothing that the program's code does can change anything.
    """
    is_confined = confine(os.getcwd(), request["program_files"])  # noqa: PTH109
    if not is_confined and not request.get("model_class"):
        raise NotAttempted("its program's classes are run only where Linux keeps them from writing (Landlock, 6.2)")
    if request.get("model_class"):
        import _load_lightning

        _load_lightning.load_lightning(request, answer)
    is_open = answer.fields["status"] == "ok" and answer.fields["forward_ok"] is None
    if is_confined and is_open and request.get("program"):
        try:
            load_model(request, answer)
        except Exception as error:
            answer.note(f"no forward pass was made: {type(error).__name__}: {error}")


def load_model(request, answer):
    """`request["program"]`: files (the start first), argv, options of the command line."""
    import torch

    program = request["program"]
    states, mappings, modules = contents(request, answer)
    if not states:
        answer.note("it holds no state of one model, so no class was looked for")
        return
    if modules:
        module = max(modules.values(), key=lambda module: _size(module.state_dict()))
        answer.note(f"it holds a pickled {type(module).__name__}, whose code is at hand")
        forward(module, None, answer)
        return
    torch.manual_seed(0)
    sources = load_sources(program["files"], request["workdir"], program["argv"])
    options = {name: _parsed(value) for name, value in program["options"].items()}
    with torch.device("meta"):
        calls = constructions_of(sources, mappings, options)
        more = [one for kind in classes_of(sources) for one in from_mappings(kind, mappings, sources)]
        expected = [(one, keys) for one in (*calls, *more) if (keys := keys_of(one))]
    passed = {label: look(label, state, expected, answer) for label, state in states.items()}
    largest = max(states, key=lambda label: _size(states[label]))
    if passed[largest] is None:
        fits = ((one, keys) for one, keys in filled(sources, mappings, options, states[largest])
                if any(not any(differences(bare, keys)) for bare in plain_states(states[largest])))
        found = next(fits, None)
        passed[largest] = look(largest, states[largest], [found], answer) if found else None
    answer.fields["forward_ok"] = True if passed[largest] else None
    if passed[largest] is None:
        look_nearly(states[largest], expected, answer)


def _size(state):
    return sum(item.numel() for item in state.values())


def contents(request, answer):
    """({label: state of one model, name -> tensor}, mappings that may hold a model's arguments, {label: module})."""
    states, mappings, modules = {}, [], {}
    for tree in trees_of(request, answer):
        _collect(tree, "", 0, states, mappings, modules)
    for place in dict.fromkeys(os.path.dirname(file) for file in request["files"]):  # noqa: PTH120
        for name in CONFIG_FILES:
            try:
                with open(os.path.join(place, name), "rb") as stream:  # noqa: PTH118, PTH123
                    found = json.loads(stream.read(MAX_CONFIG_BYTES))
            except (OSError, ValueError, RecursionError):
                continue
            mappings += [found] if isinstance(found, dict) else []
    return dict(list(states.items())[:MAX_STATES]), [*mappings, *_inner(mappings)], modules


def trees_of(request, answer):
    """What the files hold, as nested containers of tensors."""
    from _torch_files import restricted_load
    from _values import arrays_of

    if request["adapter"] in ("torch", "lightning"):
        for file in request["files"]:
            yield restricted_load(file, request, answer)
        return
    flat = {name: value for name, value in arrays_of(request) if is_weight(name)}
    yield flat
    heads = {name.partition(".")[0] for name in flat}
    if len(heads) > 1:
        yield {head: {name.partition(".")[2]: value for name, value in flat.items() if name.startswith(f"{head}.")}
               for head in heads}


def _collect(value, label, depth, states, mappings, modules):
    import torch

    if isinstance(value, torch.nn.Module):
        modules[label] = value
        value = value.state_dict()
    if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
        return
    last = label.rpartition(".")[2]
    tensors = {key: item for key, item in value.items() if isinstance(item, torch.Tensor)}
    if len(tensors) + sum(key.endswith("_extra_state") for key in value) == len(value) and tensors:
        if is_weight(label):
            states[label] = tensors
        return
    if depth and (last.lower() in CONFIGS or not tensors) and all(
            isinstance(item, (int, float, str, bool, type(None), list, tuple, dict)) for item in value.values()):
        mappings.append(value)
    if depth < MAX_DEPTH:
        for key, item in value.items():
            _collect(item, f"{label}.{key}" if label else key, depth + 1, states, mappings, modules)


def _inner(mappings):
    """Sections of a configuration: {model: {hidden: 8}}."""
    return [item for mapping in mappings for item in mapping.values()
            if isinstance(item, dict) and item and all(isinstance(key, str) for key in item)]


def _parsed(value):
    """An option's value as the program's parser would give it."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def look(label, state, expected, answer):
    """A forward pass of each class that a state fits; None where none does, else whether all were finite."""
    fits = {}
    for one, keys in expected:
        for bare in plain_states(state):
            if not any(differences(bare, keys)):
                fits.setdefault(one.kind, (one, keys, bare))
                break
    made = [fit for fit in fits.values() if fit[0].is_root] or list(fits.values())
    if not made:
        return None
    passed = [load_and_pass(one, keys, bare, label, answer) for one, keys, bare in made[:2]]
    return all(passed)


def load_and_pass(one, keys, state, label, answer):
    """Load a state into a new model of its class and pass it forward; whether that was finite."""
    names = [f"{name}: {item.dtype} -> {keys[name].dtype}" for name, item in sorted(state.items())
             if name in keys and item.dtype != keys[name].dtype]
    answer.names("dtype_changes", names)
    try:
        model = made_by(one)
        # All keys that count are there; what a class counts for itself may be absent.
        model.load_state_dict(state, strict=False)
    except BaseException as error:
        answer.note(f"not loaded into {one.kind.__name__}: {type(error).__name__}: {error}")
        return False
    of = f" of {label}" if label else ""
    where = f", made {one.where}" if one.where else ""
    answer.note(f"every key{of} fits {one.kind.__name__}{where}")
    answer.fields["forward_ok"] = None
    forward(model, lambda: made_by(one), answer)
    return answer.fields["forward_ok"] is True


def look_nearly(state, expected, answer):
    """A state that fits no class: which one it nearly fits; a key that it lacks is a doubt."""
    near = []
    for one, keys in expected:
        for bare in plain_states(state):
            found = differences(bare, keys)
            if is_near(found, bare, keys):
                near.append((sum(map(len, found)), one, found))
    if not near:
        answer.note("no class of the program fits its keys")
        return
    _, one, found = min(near, key=lambda item: item[0])
    said = "; ".join(f"{kind} {', '.join(sorted(names)[:3])}" for kind, names in zip(
        ("missing", "unexpected", "of another shape"), found, strict=True) if names)
    told = f"its keys are nearly those of {one.kind.__name__}: {said}"
    answer.doubt(told) if found[0] else answer.note(told)
