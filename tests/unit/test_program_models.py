"""Plain tensors loaded into the class that the program trained, which is found by its keys, and passed forward."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import nn

from harness import checkpoints
from harness.checkpoints.inventory import find_checkpoints
from harness.checkpoints.reload import CODELESS, Surroundings, reload_checkpoint
from harness.checkpoints.targets import target_of
from harness.command.parse import parse_command
from harness.frameworks.classes import Sources, find_sources
from harness.frameworks.settings import Settings
from tests.landlock import can_confine

SITE = Path(checkpoints.__file__).parent / "site"
IS_CONFINED = can_confine()

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.first = nn.Linear(4, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.last = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))
"""
STARTS = """
model = Net()
open("ran", "w").close()
raise SystemExit("a training")
"""


def net(hidden: int = 8) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    parts = nn.ModuleDict({"first": nn.Linear(4, hidden), "norm": nn.LayerNorm(hidden), "last": nn.Linear(hidden, 2)})
    return dict(parts.state_dict())


def program(place: Path, text: str, **others: str) -> None:
    for name, source in {"train": text, **others}.items():
        path = place / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))


def sources_of(place: Path, command: str) -> Sources:
    """The files of the program that a command starts."""
    found = find_sources(Settings(parse_command(command, place), place))
    assert found is not None
    return found


def loaded(saved: Any, place: Path) -> dict[str, Any]:
    """What children of their own answer of what torch.save made of it, beside a program in `place`."""
    folder = place / "saved"
    folder.mkdir(exist_ok=True)
    torch.save(saved, folder / "model.pt")
    target = replace(target_of(find_checkpoints(folder)[-1]), program=sources_of(place, "python train.py"))
    where = Surroundings(interpreter=Path(sys.executable), workdir=place, environ=os.environ)
    answer = reload_checkpoint(target, where)
    assert not (place / "ran").exists() and answer["adapter"] == "torch"
    if IS_CONFINED:
        return answer
    # An older kernel: the second child says so, and its code is asked by itself.
    assert (answer["status"], answer["forward_ok"]) == ("ok", None)
    assert any("Landlock" in note for note in answer["notes"])
    try:
        found = looked_at(saved, place)
    except EOFError:
        return answer
    return {**answer, **{key: found[key] for key in ("missing", "forward_ok", "notes", "doubts") if key in found}}


def looked_at(saved: Any, place: Path, command: str = "python train.py") -> dict[str, Any]:
    """The same by the second child's code alone, in a fork of this process, which has torch at hand.

    `saved`: for torch.save, or the directory of a checkpoint.
    """
    folder = saved if isinstance(saved, Path) else place / "saved"
    folder.mkdir(exist_ok=True)
    if not isinstance(saved, Path):
        torch.save(saved, folder / "model.pt")
    target, program = target_of(find_checkpoints(folder)[-1]), sources_of(place, command)
    request = {
        "adapter": target.adapter, "path": str(target.path), "files": [str(path) for path in target.files],
        "workdir": str(place), "allow_pickle": False, "is_model": True,
        "program_files": [str(path) for path in program.files],
        "program": {"files": [str(path) for path in program.files], "whole": program.whole,
                    "argv": list(program.argv), "options": dict(program.options)}}
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_answer, args=(request, theirs))
    child.start()
    theirs.close()
    answer: dict[str, Any] = ours.recv()
    child.join()
    assert not (place / "ran").exists() and target.adapter in CODELESS
    return answer


def _answer(request: dict[str, Any], pipe: Any) -> None:
    sys.path.insert(0, str(SITE))
    torch.set_num_threads(1)
    os.chdir(tempfile.mkdtemp())
    if not IS_CONFINED:
        importlib.import_module("_model").confine = lambda place, files: True
    pipe.send(importlib.import_module("_reload").answer_to(request))


def test_state_is_loaded_into_its_class_and_passed_forward(tmp_path: Path) -> None:
    """A script that trains as soon as it is imported is not run."""
    program(tmp_path, NET + STARTS)
    answer = loaded(net(), tmp_path)
    assert (answer["status"], answer["forward_ok"], answer["missing"]) == ("ok", True, []), answer
    assert any("every key fits Net" in note for note in answer["notes"])


GPT = """
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class GPTConfig:
    vocab_size: int = 100
    width: int = 16
    block_size: int = 32

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mix = nn.Linear(config.width, config.width)

    def forward(self, x):
        return x + self.mix(x)

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.width)
        self.wpe = nn.Embedding(config.block_size, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(2)])
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.wte.weight = self.head.weight

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x), None
"""


def gpt(vocab: int = 11, width: int = 6, block: int = 5) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    state = {"wte.weight": torch.randn(vocab, width), "wpe.weight": torch.randn(block, width)}
    for index in range(2):
        state |= {f"blocks.{index}.mix.{name}": item for name, item in nn.Linear(width, width).state_dict().items()}
    return state | {"head.weight": state["wte.weight"]}


def test_class_takes_its_arguments_from_the_checkpoint(tmp_path: Path) -> None:
    """As nanoGPT saves: model_args of a dataclass; its start trains at its top level, its keys are of torch.compile."""
    start = """
    import torch
    from model import GPT, GPTConfig
    vocab_size = open("meta").read()
    model = GPT(GPTConfig(vocab_size=int(vocab_size)))
    raise SystemExit("a training")
    """
    program(tmp_path, start, model=GPT)
    state = {f"_orig_mod.{name}": item for name, item in gpt().items()}
    args = {"vocab_size": 11, "width": 6, "block_size": 5}
    answer = looked_at({"model": state, "model_args": args, "iter_num": 3, "config": {"lr": 0.1}}, tmp_path)
    assert (answer["status"], answer["forward_ok"]) == ("ok", True), answer
    alone = looked_at({"model": state}, tmp_path)
    assert (alone["status"], alone["forward_ok"]) == ("ok", None) and "no class" in alone["notes"][-1]


MAIN = """
import argparse
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden-size", type=int, default=16)
    args = parser.parse_args()
    {}
    open("ran", "w").close()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("made", "flags", "hidden"), [
    ("model = Net(12)", "", 12),
    ("width = 3 * 4\n    model = Net(hidden=width).to('cpu')", "", 12),
    ("model = torch.compile(Net(args.hidden_size))", "", 16),
    ("model = Net(args.hidden_size)", " --hidden-size 6", 6),
    ("kwargs = dict(hidden=7)\n    model = nn.DataParallel(Net(**kwargs))", "", 7),
    ("model = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 2))", "", 0),
])
def test_class_is_made_as_the_program_makes_it(made: str, flags: str, hidden: int, tmp_path: Path) -> None:
    """Literals, names that stand for them, options of the command line, modules of torch itself."""
    program(tmp_path, NET + MAIN.format(made))
    plain = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 2)).state_dict()
    answer = looked_at({"state_dict": net(hidden) if hidden else dict(plain)}, tmp_path, f"python train.py{flags}")
    assert (answer["status"], answer["forward_ok"]) == ("ok", True), answer


LAYERS = {
    "conv": ("self.a = nn.Conv2d(1, 4, 3); self.b = nn.Linear(4 * 26 * 26, 2)", "self.b(self.a(x).flatten(1))"),
    "conv1d": ("self.a = nn.Conv1d(3, 4, 3)", "self.a(x).mean(-1)"),
    "conv3d": ("self.a = nn.Conv3d(1, 2, 3)", "self.a(x)"),
    "lstm": ("self.a = nn.LSTM(5, 4, batch_first=True); self.b = nn.Linear(4, 1)", "self.b(self.a(x)[0][:, -1])"),
    "bag": ("self.a = nn.EmbeddingBag(7, 3); self.b = nn.Linear(3, 1)", "self.b(self.a(x))"),
    "two": ("self.a = nn.Embedding(7, 3); self.b = nn.Embedding(4, 3)", "(self.a(x) * self.b(y)).sum(-1)"),
    "late": ("self.b = nn.Linear(3, 1); self.a = nn.Embedding(7, 3)", "self.b(self.a(x))"),
    "dict": ("self.a = nn.Linear(3, 1)", "{'loss': None, 'logits': self.a(x)}"),
    "image": ("self.a = nn.Linear(12, 1)", "self.a(x.reshape(x.shape[0], 3 * 4))"),
    "attention": ("self.a = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)", "self.a(x)"),
    "norm": ("self.a = nn.BatchNorm1d(6); self.b = nn.Linear(6, 1)", "self.b(self.a(x))"),
    "time": ("self.a = nn.Conv2d(3, 4, 3); self.b = nn.Embedding(9, 4)",
             "self.a(x) + self.b(y)[:, :, None, None]"),
    "half": ("self.a = nn.Linear(4, 2).to(torch.bfloat16)", "self.a(x)"),
    "lazy": ("self.a = nn.LazyLinear(2)", "self.a(x)"),
    "example": ("self.a = nn.Bilinear(3, 5, 1); self.example_input_array = (torch.ones(2, 3), torch.ones(2, 5))",
                "self.a(x, y)"),
}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_inputs_are_guessed_from_the_first_layer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of layer that tells what it takes, and an example that the class names itself."""
    layers, output = LAYERS[name]
    monkeypatch.syspath_prepend(SITE)
    model = made_of(tmp_path, layers, output, *("xy" if name in ("two", "example", "time") else "x"))
    if name == "lazy":
        model.load_state_dict({"a.weight": torch.ones(2, 3), "a.bias": torch.ones(2)})
    answer = importlib.import_module("_answer").Answer("torch")
    importlib.import_module("_forward").forward(model, lambda: model, answer)
    assert answer.fields["forward_ok"] is True, answer.fields


def made_of(place: Path, layers: str, output: str, *arguments: str) -> nn.Module:
    """A module of these layers."""
    text = ("import torch\nfrom torch import nn\n"
            f"class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {layers}\n"
            f"    def forward(self, {', '.join(arguments)}):\n        return {output}\n")
    (place / "net.py").write_text(text)
    spec = importlib.util.spec_from_file_location("net_of_a_test", place / "net.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: nn.Module = module.Net()
    return model


CHARACTERS = """
import torch
from torch import nn
width = 16
vocab_size = len(set(open("text").read()))
class Head(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.key = nn.Linear(width, size, bias=False)
    def forward(self, x):
        return self.key(x)
class {name}(nn.Module):
    def __init__(self, {argument}):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.heads = nn.ModuleList([Head({size}) for _ in range(3)])
        self.last = nn.Linear(3 * {size}, vocab_size)
    def forward(self, ids, targets=None):
        x = self.tokens(ids)
        return self.last(torch.cat([head(x) for head in self.heads], -1)), None
"""


@pytest.mark.parametrize(("argument", "size", "call"), [
    ("unused=1", "4", "Model()"), ("size", "size", "Model(compute())"), ("size", "size", "Model(size=compute())"),
])
def test_number_that_the_program_reads_from_its_data_is_tried(
    argument: str, size: str, call: str, tmp_path: Path
) -> None:
    """A vocabulary's size is one of the checkpoint's own; what is tried is never held against it."""
    text = CHARACTERS.format(name="Model", argument=argument, size=size)
    program(tmp_path, f"{text}\nmodel = {call}\nopen('ran', 'w').close()\n")
    torch.manual_seed(0)
    state = {"tokens.weight": torch.randn(13, 16), "last.weight": torch.randn(13, 12), "last.bias": torch.randn(13)}
    state |= {f"heads.{index}.key.weight": torch.randn(4, 16) for index in range(3)}
    answer = looked_at(state, tmp_path)
    assert (answer["status"], answer["forward_ok"]) == ("ok", True), answer
    del state["last.bias"]
    lacking = looked_at(state, tmp_path)
    assert (lacking["status"], lacking["forward_ok"], lacking["missing"]) == ("ok", None, []), lacking


LATE = """
class Late(Net):
    def __init__(self, missing, more):
        super().__init__()
        self.last = nn.Linear(8, missing, bias=more)
"""
NETS = NET + "\nclass Wide(Net):\n    def __init__(self):\n        super().__init__(32)\n"


def without(*names: str) -> dict[str, torch.Tensor]:
    return {name: item for name, item in net().items() if name not in names}


@pytest.mark.parametrize("made", ["model = Net()", "model = Net(8)\n    kept = dict(model.named_parameters())"])
def test_key_that_its_class_has_is_a_doubt(made: str, tmp_path: Path) -> None:
    """What a program means to save is not told, so that it is loaded all the same, and the key is named."""
    program(tmp_path, NETS + MAIN.format(made))
    answer = loaded(without("last.bias"), tmp_path)
    assert (answer["status"], answer["missing"], answer["forward_ok"]) == ("ok", [], None), answer
    assert answer["doubts"] == ["its keys are nearly those of Net: missing last.bias"]


@pytest.mark.parametrize(("state", "made", "nearly"), [
    (without("last.bias"), "model = Net(compute())", True),
    (without("last.bias"), "KINDS = {'late': Late}\n    model = KINDS['late'](2)\n    other = Net()", True),
    (net() | {"more": torch.ones(2)}, "model = Net()", True),
    (net() | {"last.bias": torch.ones(3)}, "model = Net(8)", True),
    (without("last.bias", "norm.bias"), "model = Net()", False),
    (net(9), "model = Net()", False),
    ({"a": torch.ones(2)}, "model = Net()", False),
])
def test_difference_is_never_a_failure(state: Any, made: str, nearly: bool, tmp_path: Path) -> None:
    """Keys that are lacking, of another shape or more, of a class that is made in a way that is not told; others."""
    program(tmp_path, NET + (LATE if "Late" in made else "") + MAIN.format(made))
    answer = looked_at(state, tmp_path)
    assert (answer["status"], answer["forward_ok"], answer["missing"], answer["mismatched"]) == ("ok", None, [], [])
    assert ("nearly those of Net" if nearly else "no class of the program") in answer["notes"][-1]
    assert bool(answer["doubts"]) == (nearly and "last.bias" not in state)


GLOBAL = """
import torch
from torch import nn
SIZE = 3

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.ids = nn.Embedding(SIZE, 4)
        self.rest = nn.ModuleList([nn.Linear(4, 4) for _ in range(8)])

def main():
    global SIZE
    SIZE = len(open("words").read())
    model = Net()

if __name__ == "__main__":
    main()
"""


def test_size_that_the_program_learns_as_it_runs_is_no_difference(tmp_path: Path) -> None:
    """A global that a class reads and the program changes: one shape in 17 differs, and nothing is wrong."""
    program(tmp_path, GLOBAL)
    rest = nn.ModuleDict({"ids": nn.Embedding(5, 4), "rest": nn.ModuleList([nn.Linear(4, 4) for _ in range(8)])})
    answer = looked_at(rest.state_dict(), tmp_path)
    assert (answer["status"], answer["mismatched"], answer["doubts"]) == ("ok", [], []), answer


@pytest.mark.parametrize(("layers", "output", "scale", "is_doubt"), [
    ("self.a = nn.Linear(4, 3); self.b = nn.Linear(3, 2)", "self.b(self.a(x))", 1e30, True),
    ("self.a = nn.Linear(4, 3)", "torch.log(torch.softmax(self.a(x), -1))", 1e4, True),
    ("self.a = nn.Linear(4, 3)", "torch.log(-torch.relu(self.a(x)) - 1)", 1.0, False),
    ("self.a = nn.Linear(4, 3)", "torch.exp(self.a(x).abs().sum() * 1e3 + x.sum() * 0)[None]", 1.0, False),
    ("self.a = nn.Linear(5, 3)", "self.a(x).reshape(7, 9)", 1.0, False),
])
def test_values_that_are_not_finite_are_a_doubt(
    layers: str, output: str, scale: float, is_doubt: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an untrained model of the class gives finite ones; a refused guess proves nothing. Never a failure."""
    monkeypatch.syspath_prepend(SITE)
    torch.manual_seed(0)
    model = made_of(tmp_path, layers, output, "x")
    model.load_state_dict({name: item * scale for name, item in model.state_dict().items()})
    answer = importlib.import_module("_answer").Answer("torch")
    importlib.import_module("_forward").forward(model, lambda: made_of(tmp_path, layers, output, "x"), answer)
    assert (answer.fields["forward_ok"], answer.fields["status"]) == (None, "ok") and answer.fields["notes"]
    assert bool(answer.fields["doubts"]) == is_doubt, answer.fields


def test_crash_of_the_programs_own_code_is_no_fault_of_the_checkpoint(tmp_path: Path) -> None:
    """What its class does to the process stays in a child of its own."""
    program(tmp_path, NET.replace("super().__init__()", "super().__init__(); import os; os.abort()"))
    answer = loaded(net(), tmp_path)
    assert (answer["status"], answer["tensors"], answer["forward_ok"]) == ("ok", 6, None)
    assert "no forward pass was made" in answer["notes"][-1] or not IS_CONFINED


WHOLE = NET + """
if __name__ == "__main__":
    torch.save({"model": Net(), "step": 3} if "dict" in __file__ else Net(), "saved/model.pt")
"""


@pytest.mark.parametrize("is_known", [True, False])
def test_pickled_model_is_passed_forward_where_unpickling_is_allowed(is_known: bool, tmp_path: Path) -> None:
    """Its class lies in __main__, which is another process's there; where its program is not known, it is no fault."""
    program(tmp_path, WHOLE)
    (tmp_path / "saved").mkdir()
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True)
    target = target_of(find_checkpoints(tmp_path / "saved")[-1])
    target = replace(target, program=sources_of(tmp_path, "python train.py")) if is_known else target
    where = Surroundings(interpreter=Path(sys.executable), workdir=tmp_path, environ=os.environ)
    assert reload_checkpoint(target, where)["status"] == "refused"
    answer = reload_checkpoint(target, replace(where, allow_pickle=True))
    assert (answer["status"], answer["forward_ok"], answer["tensors"]) == (
        ("ok", True if IS_CONFINED else None, 6) if is_known else ("not-attempted", None, 0)), answer
    assert is_known or "Net" in answer["error"]


DEEPSPEED = Path(__file__).parent / "cases" / "recorded" / "deepspeed" / "zero3-two-ranks"
SHARDED = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(5, 7)
        self.hidden = nn.Linear(7, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, {})
    def forward(self, x):
        return self.head(torch.relu(self.norm(self.hidden(self.frozen(x)))))
model = Net()
"""


@pytest.mark.parametrize("kind", ["safetensors", "torch-distributed", "deepspeed"])
def test_tensors_of_every_codeless_format_are_passed_forward(kind: str, tmp_path: Path) -> None:
    """With the names that each has: of one file, of parts, of shards; another class fits none."""
    place = tmp_path / "step_5"
    if kind == "safetensors":
        place.mkdir()
        save_file(net(), place / "model.safetensors")
    elif kind == "torch-distributed":
        moments = {"state": {0: {"exp_avg": torch.ones(4)}}, "param_groups": [{"lr": 0.1}]}
        dcp.save({"model": net(), "optimizer": moments}, checkpoint_id=place)
    else:
        place = DEEPSPEED
    program(tmp_path, SHARDED.format(1) if kind == "deepspeed" else NET + "\nmodel = Net()\n")
    answer = looked_at(place, tmp_path)
    assert (answer["status"], answer["forward_ok"], answer["adapter"]) == ("ok", True, kind), answer
    program(tmp_path, SHARDED.format(9) if kind == "deepspeed" else NETS.replace("nn.Linear(hidden, 2)", "None"))
    other = looked_at(place, tmp_path)
    assert (other["status"], other["forward_ok"]) == ("ok", None), other


def test_models_side_by_side_each_have_their_class(tmp_path: Path) -> None:
    """An actor and a critic in one file, and a copy of averages; the larger one has to be passed forward."""
    critic = "class Critic(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    critic += "        self.value = nn.Linear(4, {})\n    def forward(self, x):\n        return self.value(x)\n"
    states = {"actor": net(), "ema": net(), "critic": nn.ModuleDict({"value": nn.Linear(4, 1)}).state_dict()}
    program(tmp_path, NET + critic.format(1) + "actor, critic = Net(), Critic()\n")
    answer = looked_at({**states, "optimizer": {"state": {}}, "step": 5}, tmp_path)
    assert (answer["status"], answer["forward_ok"]) == ("ok", True)
    assert sum("every key" in note for note in answer["notes"]) == 3, answer
    program(tmp_path, NET.replace("self.last(torch", "self.last.none(torch") + critic.format(1))
    assert looked_at(states, tmp_path)["forward_ok"] is None


def test_tied_tensor_that_is_saved_once_is_not_missed(tmp_path: Path) -> None:
    """As safetensors' save_model saves it."""
    text = NET.replace("self.last = nn.Linear(hidden, 2)", "self.last = nn.Linear(hidden, 2, bias=False)").replace(
        "self.norm = nn.LayerNorm(hidden)", "self.norm = nn.LayerNorm(hidden); self.twin = nn.Linear(4, hidden)")
    text = text.replace("    def forward", "        self.twin.weight = self.first.weight\n    def forward")
    program(tmp_path, text + "\nmodel = Net()\n")
    state = without("last.bias") | {"twin.bias": torch.ones(8)}
    answer = looked_at(state, tmp_path)
    assert (answer["status"], answer["forward_ok"]) == ("ok", True), answer


def test_average_of_models_is_passed_forward(tmp_path: Path) -> None:
    """It counts how many it has averaged."""
    program(tmp_path, NET + "\nmodel = Net()\n")
    state = {f"module.{name}": item for name, item in net().items()} | {"n_averaged": torch.tensor(3)}
    answer = looked_at(state, tmp_path)
    assert (answer["status"], answer["forward_ok"]) == ("ok", True), answer


def test_files_that_read_the_command_line_see_the_programs(tmp_path: Path) -> None:
    """A module of options that parses as it is imported."""
    options = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--wide", type=int, required=True)
    args = parser.parse_args()
    """
    program(tmp_path, NET + "\nfrom options import args\nmodel = Net(args.wide)\n", options=options)
    answer = looked_at(net(5), tmp_path, "python train.py --wide 5")
    assert (answer["status"], answer["forward_ok"]) == ("ok", True), answer
