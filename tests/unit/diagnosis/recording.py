"""Makes the logs of rules anew from programs that fail for real: `python tests/unit/diagnosis/recording.py [RULE...]`.

Each program runs in an empty directory; what it printed is kept in logs/rule-RULE.log, without this machine's paths.
rule-worker-exit.log, rule-signal-exception.log and ranks-*.log are torchrun's on tests/trainers' failing_ranks.py: its
own output while the ranks' goes to files (--log-dir, --redirects 3), its end by SIGTERM, and both in one.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

LOGS = Path(__file__).parent / "logs"
STEPS = "for step in range(1, 4): print(f'step {step}/9 loss {2 / step:.3f}', flush=True)\n"
ONE_RANK = ("import os, datetime, torch.distributed as dist\n"
            "os.environ |= {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}\n"
            "os.environ |= {'RANK': str(rank), 'WORLD_SIZE': '2'}\n"
            "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=3))\n")
FREE_PORT = "import socket\nheld = socket.socket(); held.bind(('127.0.0.1', 0)); port = held.getsockname()[1]\n"
PROGRAMS = {
    "uncaught-exception": STEPS + "raise RuntimeError('the schedule has no steps left')",
    "oom-host-alloc": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (400 << 20,) * 2)\n" + STEPS
    + "rows = bytearray(2 << 30)",
    "missing-module": "import flash_attention_of_no_release",
    "missing-file": "rows = open('data/train.jsonl').read()",
    "wrong-flag": "import argparse\nparser = argparse.ArgumentParser(prog='train.py')\nparser.add_argument('--lr')\n"
    "parser.add_argument('--resume', choices=('auto', 'SIGTERM', 'never'))\n"
    "parser.parse_args(['--learning-rat', '1e-4'])",
    "read-only": "import os\nos.setuid(65534)\nopen('/etc/checkpoint.bin', 'wb')",
    "open-files": STEPS + "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))\n"
    "shards = [open('train.py') for _ in range(40)]",
    "io-error": STEPS + "with open('/proc/self/mem', 'rb', buffering=0) as shard: shard.read(16)",
    "disk-full": STEPS + "with open('/dev/full', 'wb') as checkpoint: checkpoint.write(b'weights' * 4096)",
    "segfault": "import ctypes, faulthandler\nfaulthandler.enable()\n" + STEPS + "ctypes.string_at(0)",
    "hang-dump": "import faulthandler, time\nfaulthandler.dump_traceback_later(1, exit=True)\n" + STEPS
    + "time.sleep(60)",
    "nan": "import torch\ntorch.autograd.set_detect_anomaly(True)\nx = torch.tensor([-1.0], requires_grad=True)\n"
    + STEPS + "x.sqrt().sum().backward()",
    "nan-logged": "import torch\nw = torch.ones(1, requires_grad=True)\nfor step in range(1, 9):\n"
    "    loss = (w * 3 - 1).square().sum(); loss.backward()\n"
    "    with torch.no_grad(): w -= 1e20 * w.grad; w.grad = None\n"
    "    print(f'step {step}/8 loss {loss.item()}', flush=True)\nraise SystemExit(1)",
    "checkpoint-damaged": "import torch\ntorch.save({'w': torch.zeros(4096)}, 'model.pt')\n"
    "with open('model.pt', 'r+b') as file: file.seek(200); file.write(b'x' * 3000)\ntorch.load('model.pt')",
    "checkpoint-unreadable": "import torch\ntorch.save({'w': torch.zeros(4096)}, 'model.pt')\n"
    "with open('model.pt', 'r+b') as file: file.truncate(9000)\ntorch.load('model.pt')",
    "data-parse": "import json\nrows = [json.loads(line) for line in ('{\"prompt\": 1}', '{\"prompt\": ')]",
    "dataset-schema": "from torch.utils.data import DataLoader, Dataset\nclass Rows(Dataset):\n"
    "    def __len__(self): return 8\n    def __getitem__(self, index): return {'text': 1}['labels']\n"
    "for batch in DataLoader(Rows(), num_workers=1): print(batch)",
    "port-in-use": "rank = 0\n" + FREE_PORT + "held.listen()\n" + ONE_RANK,
    "rendezvous": "rank = 1\n" + FREE_PORT + "held.close()\n" + ONE_RANK,
    "cuda-missing": "import torch\ntorch.zeros(1).cuda()",
    "address-refused": FREE_PORT + "held.close()\nimport urllib.request\n"
    "urllib.request.urlopen(f'http://127.0.0.1:{port}/models/acme/tiny')",
    "connection-lost": "import socket, threading, urllib.request\nserver = socket.create_server(('127.0.0.1', 0))\n"
    "def close():\n    peer = server.accept()[0]; peer.recv(4096); peer.close()\n"
    "threading.Thread(target=close).start()\n"
    "urllib.request.urlopen(f'http://127.0.0.1:{server.getsockname()[1]}/models/acme/tiny')",
    "pipe-lost": "import multiprocessing, os\nours, theirs = multiprocessing.Pipe()\n"
    "worker = multiprocessing.get_context('fork').Process(target=os._exit, args=(3,))\nworker.start()\n"
    "theirs.close(); worker.join()\nours.recv()",
    "thread-queue": STEPS + "import queue\nqueue.SimpleQueue().get(block=False)",
    "exit-call": "import sys, traceback\ntry: sys.exit(3)\nexcept SystemExit:\n    traceback.print_exc()\n    raise",
    "compile": "import torch\ntorch.compile(lambda x: (x.sin() + 1).cos())(torch.ones(9))",
}
LINES = {
    "missing-module-line": "python -m trainer_of_no_release",
    "command-missing": "torchrun_of_no_release --nproc-per-node 2 train.py",
    "permission-line": "touch train.sh; ./train.sh",
    "disk-full-line": "echo 'step 1/9 loss 2.0'; echo 'step 2/9 loss 1.0' > /dev/full",
    "bus-error-line": "echo 'step 1/9 loss 2.0'; python -c 'import os; os.kill(os.getpid(), 7)'; exit $?",
}
HUB = """import json, os, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from huggingface_hub import HfApi
os.environ |= {'HF_HUB_ENABLE_HF_TRANSFER': '0', 'NO_PROXY': '*'}
def answer(status, headers, body):
    global url
    class Hub(BaseHTTPRequestHandler):
        def log_message(self, *words): pass
        def do_GET(self):
            text = json.dumps(body).encode()
            self.send_response(status)
            for pair in {**headers, 'Content-Type': 'application/json', 'Content-Length': len(text)}.items():
                self.send_header(pair[0], str(pair[1]))
            self.end_headers(); self.wfile.write(text)
    server = HTTPServer(('127.0.0.1', 0), Hub)
    url = f'http://127.0.0.1:{server.server_port}'
    threading.Thread(target=server.serve_forever, daemon=True).start()
"""
TRANSFORMERS = {
    "arguments-unused": "from transformers import HfArgumentParser, TrainingArguments\n"
    "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(['--output_dir', 'out', '--learning_speed', '1'])",
    "hub-offline": "import os\nos.environ['HF_HUB_OFFLINE'] = '1'\nfrom huggingface_hub import HfApi\n"
    "HfApi().model_info('acme/tiny')",
    **{f"hub-{name}": HUB + f"answer({status}, {headers!r}, {body!r})\nHfApi(endpoint=url).model_info('acme/tiny')"
       for name, status, headers, body in (
        ("gated", 401, {"X-Error-Code": "GatedRepo"}, {"error": "Access to model acme/tiny is restricted."}),
        ("forbidden", 403, {}, {}), ("unauthorized-missing", 401, {"X-Error-Code": "RepoNotFound"}, {}),
        ("no-revision", 404, {"X-Error-Code": "RevisionNotFound"}, {}), ("throttled", 429, {}, {}))},
    "metric-for-best": "from transformers import Trainer, TrainingArguments\nimport torch\n"
    "arguments = TrainingArguments('out', metric_for_best_model='f1', report_to=[], use_cpu=True)\n"
    "Trainer(torch.nn.Linear(1, 1), arguments)._determine_best_metric({'eval_loss': 0.5}, trial=None)",
    "oom-batch-search": "from accelerate.utils import find_executable_batch_size\n"
    "@find_executable_batch_size(starting_batch_size=2)\ndef train(batch_size):\n"
    "    raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\ntrain()",
}
"""Programs that need transformers, which the environment of the unit tests lacks."""
MODELSCOPE = {
    f"modelscope-{name}": HUB.replace("from huggingface_hub import HfApi", "from modelscope_hub import HubApi")
    + f"answer({status}, {{}}, {body!r})\nHubApi(endpoint=url).get_repo('acme/tiny', 'model')"
    for name, status, body in (
        ("forbidden", 403, {"Code": 10010202001, "Message": "用户未登录"}),
        ("missing", 404, {"Code": 10010205001, "Message": "模型不存在"}),
        ("throttled", 429, {"Code": 10010100003, "Message": "请求过于频繁"}))
}
"""Programs that need modelscope."""


def record(rule: str) -> int:
    """Run the program of a rule and keep what it prints; its exit code."""
    source = {**PROGRAMS, **TRANSFORMERS, **MODELSCOPE}.get(rule)
    with tempfile.TemporaryDirectory() as place:
        words = ["bash", "-c", LINES[rule]] if source is None else [sys.executable, "train.py"]
        (Path(place) / "train.py").write_text(source or "")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, timeout=120, env={**os.environ, "PATH": path, "CXX": "/bin/false"})
        (LOGS / f"rule-{rule}.log").write_text(without_paths(done.stdout, place))
    return done.returncode


def without_paths(text: str, place: str) -> str:
    """The text with the directories and the name of this machine taken out."""
    for path in {str(Path(place).resolve()), place}:
        text = text.replace(path, "/srv/job")
    text = re.sub(r"/[\w./-]*?/(?:site-packages|dist-packages)/", "/venv/site-packages/", text)
    text = re.sub(r"/[\w./-]*?/lib/python3", "/usr/lib/python3", text)
    text = re.sub(r"/tmp/torchinductor_\w+/|/tmp/tmp\w+", "/tmp/build/", text)
    return text.replace(sys.executable, "/venv/bin/python").replace(socket.gethostname(), "node1")


if __name__ == "__main__":
    for name in sys.argv[1:] or [*PROGRAMS, *LINES]:
        print(name, record(name), flush=True)
