"""The bundled default job's model, by its own classes: keys, a forward pass, answers, and its evaluation loss."""

# mypy: ignore-errors

import importlib.util
import json
import math
import os

from _answer import Broken

PROMPTS = ("1+2=", "3+5=", "9+8=")


def load_tiny_lm(request, answer):
    """`request["module"]` is the job's own file."""
    import torch
    from safetensors.torch import load_file

    job = _job(request["module"])
    with open(os.path.join(request["path"], "config.json"), encoding="utf-8") as stream:  # noqa: PTH118, PTH123
        config = json.load(stream)
    fields = {key: config[key] for key in job.ModelConfig.__dataclass_fields__ if key in config}
    model = job.TinyLM(job.ModelConfig(**fields))
    state = load_file(os.path.join(request["path"], "model.safetensors"))  # noqa: PTH118
    expected = model.state_dict()
    answer.fields["tensors"] = len(state)
    answer.names("missing", expected.keys() - state.keys())
    answer.names("unexpected", state.keys() - expected.keys())
    answer.names("mismatched", [name for name in state.keys() & expected.keys()
                                if state[name].shape != expected[name].shape])
    answer.names("dtype_changes", [name for name in state.keys() & expected.keys()
                                   if state[name].dtype != expected[name].dtype])
    if answer.fields["missing"] or answer.fields["unexpected"] or answer.fields["mismatched"]:
        raise Broken("its keys are not those of the model")
    model.load_state_dict(state)
    model.eval()
    torch.set_num_threads(1)
    sums = job.all_sums()
    with torch.inference_mode():
        answer.fields["forward_ok"] = bool(torch.isfinite(model(sums[:, :-1])).all())
        if not answer.fields["forward_ok"]:
            answer.fields["error_kind"] = "forward"
            raise Broken("a forward pass gives values that are not finite")
        loss = job.evaluate(model, sums)[0]
        if not math.isfinite(loss):
            raise Broken("its evaluation loss is not finite")
        answer.fields["eval_loss"] = loss
        model.eval()
        for prompt in PROMPTS:
            tokens = torch.tensor([job.encode(prompt)])
            for _ in range(job.ANSWER_LEN):
                tokens = torch.cat([tokens, model(tokens)[:, -1].argmax(-1, keepdim=True)], dim=1)
            text = "".join(job.CHARS[index] for index in tokens[0, len(prompt):].tolist())
            answer.fields["samples"].append({"prompt": prompt, "completion": text.partition("\n")[0]})


def _job(path):
    """The module, without TensorBoard, which loading a model needs not and which takes a second to import."""
    import sys
    import types

    stub = types.ModuleType("torch.utils.tensorboard")
    stub.SummaryWriter = None
    sys.modules.setdefault("torch.utils.tensorboard", stub)
    spec = importlib.util.spec_from_file_location("tiny_lm", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tiny_lm"] = module
    spec.loader.exec_module(module)
    return module
