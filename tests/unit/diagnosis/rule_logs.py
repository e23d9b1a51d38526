"""For every rule a log that needs it, and one that looks alike and must not meet it; messages as programs print them."""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sample:
    """Two logs of one rule."""

    needs: str
    spares: str
    exit_code: int | None = 1
    stopped: str | None = None
    reasons: tuple[str, ...] = ()


LOGS = Path(__file__).parent / "logs"
RECORDED = Path(__file__).parents[1] / "cases" / "recorded" / "areno-failures"


def recorded(name: str) -> str:
    """The log of a program that failed for real; `recording.py` says of which, or it is AReno's."""
    place = LOGS / name if (LOGS / name).exists() else RECORDED / name
    return place.read_text(encoding="utf-8")


def raised(error: str, *frames: str) -> str:
    """A traceback that ends in `error`; frames are `file:function: code`."""
    lines = ["Traceback (most recent call last):"]
    for frame in frames or ("/srv/job/train.py:main: run()",):
        file, function, code = frame.split(":", 2)
        lines += [f'  File "{file}", line 12, in {function}', f"    {code.strip()}"]
    return "\n".join([*lines, error, ""])


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
TRAIN = "/srv/engine/worker.py:train_step: loss.backward()"
ROLLOUT = "/srv/engine/rollout.py:generate: self.step()"
PLAIN = raised("RuntimeError: something else")
DATA = "/srv/job/data.py:__getitem__: return row"

SAMPLES: dict[str, Sample] = {
    "oom-batch-search": Sample(raised("RuntimeError: No executable batch size found, reached zero."),
                               "the executable batch size found is 8\n"),
    "capture-oom": Sample(raised("RuntimeError: out of memory while capturing the decode CUDA graph for bucket 8"),
                          raised(OOM, TRAIN)),
    "oom-rollout": Sample(raised(OOM, ROLLOUT), raised(OOM, TRAIN)),
    "oom-train": Sample(raised(OOM, TRAIN), raised(OOM, ROLLOUT)),
    "oom-device": Sample(raised(OOM), "Warning: CUDA out of memory is likely with this batch size\n"),
    "oom-host-alloc": Sample(recorded("rule-oom-host-alloc.log"), raised(OOM)),
    "oom-host-confirmed": Sample("slurmstepd: error: Detected 1 oom_kill event in StepId=4522.batch. Some of the step "
                                 "tasks have been OOM Killed.\n", "kernel oom killer is configured: oom_score_adj=0\n"),
    "oom-host-suspected": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-9),
    "device-assert": Sample("../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [3,0,0], "
                            "thread: [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
                            + raised("RuntimeError: CUDA error: device-side assert triggered", TRAIN),
                            raised("AssertionError: thread 3 failed", TRAIN)),
    "device-assert-reported": Sample(raised("RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors "
                                            "might be asynchronously reported at some other API call"),
                                     raised("RuntimeError: CUDA error: an illegal memory access was encountered")),
    "capture": Sample(raised("RuntimeError: CUDA error: operation not permitted when stream is capturing"),
                      raised("RuntimeError: the camera stopped capturing frames")),
    "compile": Sample(recorded("rule-compile.log"),
                      raised("re.error: cannot compile the pattern at position 3")),
    "gpu-hardware": Sample(raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
                           raised("RuntimeError: CUDA error: invalid argument")),
    "gpu-lost": Sample("[12.1] NVRM: Xid (PCI:0000:65:00): 79, pid=912, GPU has fallen off the bus, error.\n",
                       "[12.1] NVRM: Xid (PCI:0000:65:00): 31, pid=912, MMU fault, error.\n"),
    "gpu-xid": Sample("[12.1] NVRM: Xid (PCI:0000:65:00): 31, pid=912, MMU fault, error.\n",
                      "NVRM: loading NVIDIA UNIX x86_64 Kernel Module 550.54, no error\n"),
    "cuda-missing": Sample(recorded("rule-cuda-missing.log"),
                           raised("RuntimeError: no data is available")),
    "cuda-error": Sample(raised("RuntimeError: CUDA error: an illegal memory access was encountered"),
                         "CUDA errors are checked for after each step\n" + PLAIN),
    "port-in-use": Sample(recorded("rule-port-in-use.log"),
                          raised("ValueError: this name is already in use")),
    "port-in-use-line": Sample("ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address "
                               "already in use\n", "error: the port is not in use\n"),
    "nccl-watchdog": Sample("[rank0]:[E110 10:25:07.100 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective "
                            "operation timeout: WorkNCCL(SeqNum=412, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600011 "
                            "milliseconds before timing out.\n", "watchdog: started with a timeout of 600 s\n" + PLAIN),
    "collective-timeout": Sample(recorded("ranks-hang.log"),
                                 raised("TimeoutError: the user did not answer")),
    "pipe-lost": Sample(recorded("rule-pipe-lost.log"),
                        raised("ConnectionResetError: [Errno 104] Connection reset by peer",
                               "/usr/lib/python3.11/ssl.py:read: return self._sslobj.read(len, buffer)")),
    "connection-lost": Sample(recorded("rule-connection-lost.log"),
                              raised("RuntimeError: [pair.cc:553] Connection reset by peer [127.0.0.1]:3991.")),
    "peer-gone": Sample(raised("RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:3991."),
                        raised("RuntimeError: the connection pool is closed by its owner")),
    "rendezvous": Sample(recorded("rule-rendezvous.log"), raised("ValueError: --rdzv-backend was not given")),
    "nccl-error": Sample(raised("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, unhandled "
                                "system error"), raised("ValueError: backend nccl is not a gloo one")),
    "elastic-agent": Sample("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n",
                            raised("ValueError: child 3 failed")),
    "dataset-cache": Sample(raised("RuntimeError: Dataset cache is incomplete; download it again"),
                            raised("RuntimeError: the KV cache is incomplete")),
    "dataset-contract": Sample(recorded("gspo-no-loader.log"), raised("ValueError: config must contain `lr`")),
    "shared-memory": Sample(recorded("ranks-worker-bus.log"),
                            raised("RuntimeError: DataLoader worker (pid 22) is killed by signal: Killed.")),
    "dataloader-worker": Sample(recorded("ranks-worker-killed.log"),
                                "DataLoader worker 3 started (pid 5107), no errors\n" + PLAIN),
    "dataloader-gone": Sample(
        recorded("ranks-worker-gone.log"),
        raised("ConnectionResetError: [Errno 104] Connection reset by peer", "/srv/job/client.py:read: sock.recv(9)")),
    "dataset-schema": Sample(recorded("rule-dataset-schema.log"), raised("KeyError: 'HOME'", TRAIN)),
    "data-parse": Sample(recorded("rule-data-parse.log"),
                         raised("ValueError: no decoder for this model")),
    "reward": Sample(recorded("reward-indexerror.log"),
                     raised("IndexError: list index out of range", TRAIN)),
    "agent-filtered": Sample(raised("RuntimeError: all agent trajectories were filtered (0 overlong, 4 invalid)"),
                             "agent trajectories were filtered: 1 of 8, no error\n" + PLAIN),
    "rollout-engine": Sample(raised("RuntimeError: MLX rollout scheduler failed"),
                             raised("RuntimeError: the rollout is too short")),
    "nan": Sample(recorded("rule-nan.log"),
                  raised("ValueError: nanosecond timestamps are not supported")),
    "nan-logged": Sample(recorded("rule-nan-logged.log"),
                         "{'loss': 1.5, 'eval_nan_count': 0, 'epoch': 0.5}\n"),
    "loss-scale": Sample(raised("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting "
                                "run."), "Grad overflow, reducing loss scale to 32768\n" + PLAIN),
    "disk-full": Sample(recorded("rule-disk-full.log"), raised(OOM)),
    "disk-full-line": Sample(recorded("rule-disk-full-line.log"), "no space between the words, error\n"),
    "disk-quota": Sample(raised("OSError: [Errno 122] Disk quota exceeded: '/home/u/ckpt'"),
                         raised("ValueError: maximum length exceeded")),
    "checkpoint-damaged": Sample(recorded("rule-checkpoint-damaged.log"), raised("RuntimeError: stream reader is closed")),
    "read-only": Sample(recorded("rule-read-only.log"),
                        raised("ValueError: mode 'read' is not known")),
    "permission-line": Sample(recorded("rule-permission-line.log"), "user: the operation was denied by policy\n"),
    "open-files": Sample(recorded("rule-open-files.log"), raised("ValueError: too many values")),
    "io-error": Sample(recorded("rule-io-error.log"), raised("OSError: [Errno 28] No space left on "
                                                                              "device")),
    "hub-refused": Sample(raised("requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://hub"),
                          raised("ValueError: 401 rows are not divisible by 8")),
    "hub-throttled": Sample(raised("requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://h"),
                            raised("ValueError: 429 steps are too few")),
    "hub-missing": Sample(raised("requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://hub"),
                          raised("KeyError: 404")),
    "hub-offline": Sample(recorded("rule-hub-offline.log"), raised("ValueError: the node is offline")),
    "address-refused": Sample(recorded("rule-address-refused.log"),
                              raised("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='h', port=443): Max "
                                     "retries exceeded with url: /m (Caused by ConnectTimeoutError())")),
    "hub-unreachable": Sample(recorded("modelscope-unreachable.log"),
                              raised("ValueError: 数据格式不对")),
    "deepspeed-mismatch": Sample("ValueError: Please correct the following DeepSpeed config values that mismatch "
                                 "TrainingArguments values:\n- ds optimizer.params.lr=0.0001 vs hf learning_rate=5e-06\n",
                                 raised("ValueError: DeepSpeed is not installed")),
    "wrong-flag": Sample(recorded("rule-wrong-flag.log"),
                         "parser: error rate is 3 percent, no choice was invalid\n", exit_code=2),
    "arguments-unused": Sample(recorded("rule-arguments-unused.log"), raised("ValueError: some rows are not used")),
    "missing-module": Sample(recorded("rule-missing-module.log"),
                             "the module flash_attn was not found, falling back\n" + PLAIN),
    "missing-module-line": Sample(recorded("rule-missing-module-line.log"), "snake: no module was changed\n"),
    "command-missing": Sample(recorded("rule-command-missing.log"), "cache entry not found, downloading\n",
                              exit_code=127),
    "missing-file": Sample(recorded("rule-missing-file.log"),
                           raised("ValueError: the file is empty")),
    "metric-for-best": Sample(raised("KeyError: \"The `metric_for_best_model` training argument is set to 'eval_f1', which "
                                     "is not found in the evaluation metrics.\""), raised("KeyError: 'eval'")),
    "time-limit": Sample("slurmstepd: error: *** JOB 77 ON node3 CANCELLED AT 2026-01-10T04:12:00 DUE TO TIME LIMIT ***\n",
                         "slurmstepd: error: *** JOB 77 ON node3 CANCELLED AT 2026-01-10T04:12:00 ***\n"),
    "preempted": Sample("slurmstepd: error: *** JOB 77 ON n3 CANCELLED AT 2026-01-10T04:12:00 DUE TO PREEMPTION ***\n",
                        "preemption is enabled: signal USR1 will be sent\n" + PLAIN),
    "node-failure": Sample("slurmstepd: error: *** JOB 77 ON n3 CANCELLED AT 2026-01-10T04:12:00 DUE TO NODE FAILURE ***\n",
                           "no node has failed so far\n" + PLAIN),
    "slurm-cancelled": Sample("slurmstepd: error: *** JOB 77 ON node3 CANCELLED AT 2026-01-10T04:12:00 ***\n",
                              "job 77 will be cancelled at 04:12\n" + PLAIN),
    "submission": Sample("srun: error: Unable to create step for job 12: Invalid account\n",
                         "srun: error: node3: task 0: Exited with exit code 1\n" + PLAIN),
    "node-died": Sample(raised("ray.exceptions.NodeDiedError: Task failed due to the node (ID: 4f2) dying."),
                        raised("ValueError: a node of the graph is dead")),
    "ray-actor": Sample(raised("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."),
                        raised("ValueError: an actor has no critic")),
    "signal-handler": Sample("step 3/9 loss 1.0\ncaught signal 15, exiting\n", "signal 15 will be caught and handled\n",
                             exit_code=0),
    "signal-exception": Sample(recorded("rule-signal-exception.log"), raised("ValueError: the signal is too weak")),
    "terminated": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-15),
    "closing-signal": Sample("W0110 04:00:01.000000 8999 torch/distributed/elastic/multiprocessing/api.py:897] Sending "
                             "process 9000 closing signal SIGTERM\n", "process 9000 is closing, no signal was sent\n"),
    "bus-error": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-7),
    "bus-error-line": Sample(recorded("rule-bus-error-line.log"),
                             "the bus arrived, error 0\n"),
    "segfault": Sample(recorded("rule-segfault.log"),
                       "error of the segmentation head: 0.3\nusage: train.py [-h] [--lr LR]\n"
                       "                [--crash {exit,SIGSEGV,SIGKILL}] [--error ERROR]\n"),
    "segfault-exit": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=139),
    "native-exception": Sample("terminate called after throwing an instance of 'std::runtime_error'\n",
                               "workers terminate after the last batch\n"),
    "aborted": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-6),
    "hang-dump": Sample(recorded("rule-hang-dump.log"), "Timeout: none, no error\n"),
    "stalled": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-15, stopped="timeout"),
    "cancelled": Sample("step 1/9 loss 1.0\n", PLAIN, exit_code=-15, stopped="cancelled"),
    "worker-exit": Sample(recorded("rule-worker-exit.log"), "worker 3 has exit code 1 in its table of codes\n"),
    "checkpoint-unreadable": Sample(recorded("rule-checkpoint-unreadable.log"),
                                    raised("OSError: [Errno 22] Invalid argument", TRAIN)),
    "usage": Sample("step 1/9 loss 1.0\n", PLAIN, exit_code=2),
    "thread-queue": Sample(recorded("rule-thread-queue.log"), PLAIN),
    "exit-call": Sample(raised("SystemExit: 3"), PLAIN),
    "judged-not-finite": Sample("", "finiteness-unproven", exit_code=0, reasons=("loss-not-finite",)),
    "judged-no-signal": Sample("", "effect-unproven", exit_code=0, reasons=("no-learning-signal",)),
    "judged-no-update": Sample("", "updates-unproven", exit_code=0, reasons=("no-update-executed",)),
    "judged-dataset": Sample("", "cancelled", exit_code=0, reasons=("dataset-contract-broken",)),
    "judged-hub": Sample("", "hub-asset-missing", exit_code=0, reasons=("hub-unreachable",)),
    "judged-device": Sample("", "env-unrecorded", exit_code=0, reasons=("gpu-missing",)),
    "judged-ranks": Sample("", "topology-unproven", exit_code=0, reasons=("world-size-not-realised",)),
    "judged-save": Sample("", "evidence-incomplete", exit_code=0, reasons=("checkpoint-missing",)),
    "judged-evaluation": Sample("", "exit-code", exit_code=0, reasons=("reward-mismatch",)),
    "judged-expectation": Sample("", "unresolved-anomaly", exit_code=0, reasons=("expect-out-of-band",)),
    "stopped-on-divergence": Sample("", "stopped-on-anomaly", exit_code=0, reasons=("stopped-on-gradient-explosion",)),
    "stopped-on-oom": Sample("", "stopped-on-anomaly", exit_code=0, reasons=("stopped-on-oom",)),
    "stopped-on-stall": Sample("", "stopped-on-anomaly", exit_code=0, reasons=("stopped-on-stalled",)),
    "stopped-on-slowness": Sample("", "stopped-on-anomaly", exit_code=0, reasons=("stopped-on-slow-throughput",)),
    "stopped-on-crash": Sample("", "stopped-on-anomaly", exit_code=0, reasons=("stopped-on-crash",)),
    "judged-lost": Sample("", "exit-code", exit_code=0, reasons=("supervisor-lost",)),
    "judged-command": Sample("", "exit-code", exit_code=0, reasons=("entrypoint-missing",)),
    "uncaught-exception": Sample(recorded("rule-uncaught-exception.log"), raised("KeyError: 'labels'", DATA)),
}
EXIT_RULES = ("oom-host-suspected", "terminated", "bus-error", "segfault-exit", "aborted", "stalled", "cancelled", "usage")
