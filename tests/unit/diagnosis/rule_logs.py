"""For every rule a log that needs it, and one that looks alike and must not meet it.

The first are recorded from programs that really failed (`recording.py`), or in the words of public reports and sources
(`public_logs.py`); rules of exits and reason codes need no words.
"""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.unit.diagnosis.public_logs import OOM, ROLLOUT, TRAIN, first_of, raised


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


PLAIN = raised("RuntimeError: something else")
DATA = "/srv/job/data.py:__getitem__: return row"

SAMPLES: dict[str, Sample] = {
    "capture-oom-within": Sample(first_of("capture-oom-within"), raised(OOM, TRAIN)),
    "oom-host-ray": Sample(first_of("oom-host-ray"), raised(OOM)),
    "oom-host-raylet": Sample(
        first_of("oom-host-raylet"), "(raylet) node_manager.cc:3277: 0 Workers (tasks / actors) killed due to memory pressure "
        "(OOM), 1 Workers crashed due to other reasons at node (ID: 8289f87b, IP: 10.0.0.7) over the last time period.\n"),
    "oom-metal": Sample(first_of("oom-metal"), "libc++abi: terminating due to uncaught exception of type std::runtime_error: "
                        "[METAL] Command buffer execution failed: Internal Error (0000000e:Internal Error)\n"),
    "cuda-error-line": Sample(first_of("cuda-error-line"), first_of("nccl-watchdog")),
    "device-assert-line": Sample(first_of("device-assert-line"), first_of("cuda-error-line")),
    "metric-for-best-key": Sample(recorded("rule-metric-for-best.log"), raised("KeyError: 'eval_f1'")),
    "oom-batch-search": Sample(recorded("rule-oom-batch-search.log"),
                               "the executable batch size found is 8\n"),
    "capture-oom": Sample(first_of("capture-oom"),
                          raised(OOM, TRAIN)),
    "oom-rollout": Sample(first_of("oom-rollout"), raised(OOM, TRAIN)),
    "oom-train": Sample(first_of("oom-train"), raised(OOM, ROLLOUT)),
    "oom-device": Sample(first_of("oom-device"), "Warning: CUDA out of memory is likely with this batch size\n"),
    "oom-host-alloc": Sample(recorded("rule-oom-host-alloc.log"), raised(OOM)),
    "oom-host-confirmed": Sample(first_of("oom-host-confirmed"), "kernel oom killer is configured: oom_score_adj=0\n"),
    "oom-host-suspected": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-9),
    "device-assert": Sample(first_of("device-assert"),
                            raised("AssertionError: thread 3 failed", TRAIN)),
    "device-assert-reported": Sample(first_of("device-assert-reported"),
                                     raised("RuntimeError: CUDA error: an illegal memory access was encountered")),
    "capture": Sample(first_of("capture"),
                      raised("RuntimeError: the camera stopped capturing frames")),
    "compile": Sample(recorded("rule-compile.log"),
                      raised("re.error: cannot compile the pattern at position 3")),
    "gpu-hardware": Sample(first_of("gpu-hardware"),
                           raised("RuntimeError: CUDA error: invalid argument")),
    "gpu-lost": Sample(first_of("gpu-lost"),
                       first_of("gpu-xid")),
    "gpu-xid": Sample(first_of("gpu-xid"),
                      "[Sun Jul 28 09:15:27 2024] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"),
    "cuda-missing": Sample(recorded("rule-cuda-missing.log"),
                           raised("RuntimeError: no data is available")),
    "cuda-error": Sample(first_of("cuda-error"),
                         "CUDA errors are checked for after each step\n" + PLAIN),
    "port-in-use": Sample(recorded("rule-port-in-use.log"),
                          raised("ValueError: this name is already in use")),
    "port-in-use-line": Sample(first_of("port-in-use-line"), "error: the port is not in use\n"),
    "nccl-watchdog": Sample(first_of("nccl-watchdog"), "watchdog: started with a timeout of 600 s\n" + PLAIN),
    "collective-timeout": Sample(recorded("ranks-hang.log"),
                                 raised("TimeoutError: the user did not answer")),
    "pipe-lost": Sample(recorded("rule-pipe-lost.log"),
                        raised("ConnectionResetError: [Errno 104] Connection reset by peer",
                               "/usr/lib/python3.11/ssl.py:read: return self._sslobj.read(len, buffer)")),
    "connection-lost": Sample(recorded("rule-connection-lost.log"),
                              raised("RuntimeError: [pair.cc:553] Connection reset by peer [127.0.0.1]:3991.")),
    "peer-gone": Sample(first_of("peer-gone"),
                        raised("RuntimeError: the connection pool is closed by its owner")),
    "rendezvous": Sample(recorded("rule-rendezvous.log"), raised("ValueError: --rdzv-backend was not given")),
    "nccl-error": Sample(first_of("nccl-error"), raised("ValueError: backend nccl is not a gloo one")),
    "elastic-agent": Sample(first_of("elastic-agent"),
                            raised("ValueError: child 3 failed")),
    "dataset-cache": Sample(first_of("dataset-cache"),
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
    "agent-filtered": Sample(first_of("agent-filtered"),
                             "agent trajectories were filtered: 1 of 8, no error\n" + PLAIN),
    "rollout-engine": Sample(first_of("rollout-engine"),
                             raised("RuntimeError: the rollout is too short")),
    "nan": Sample(recorded("rule-nan.log"),
                  raised("ValueError: nanosecond timestamps are not supported")),
    "nan-logged": Sample(recorded("rule-nan-logged.log"),
                         "{'loss': 1.5, 'eval_nan_count': 0, 'epoch': 0.5}\n"),
    "loss-scale": Sample(first_of("loss-scale"), "Grad overflow, reducing loss scale to 32768\n" + PLAIN),
    "disk-full": Sample(recorded("rule-disk-full.log"), raised(OOM)),
    "disk-full-line": Sample(recorded("rule-disk-full-line.log"), "no space between the words, error\n"),
    "disk-quota": Sample(first_of("disk-quota"),
                         raised("ValueError: maximum length exceeded")),
    "checkpoint-damaged": Sample(recorded("rule-checkpoint-damaged.log"), raised("RuntimeError: stream reader is closed")),
    "read-only": Sample(recorded("rule-read-only.log"),
                        raised("ValueError: mode 'read' is not known")),
    "permission-line": Sample(recorded("rule-permission-line.log"), "user: the operation was denied by policy\n"),
    "open-files": Sample(recorded("rule-open-files.log"), raised("ValueError: too many values")),
    "io-error": Sample(recorded("rule-io-error.log"), raised("OSError: [Errno 28] No space left on "
                                                                              "device")),
    "hub-refused": Sample(recorded("rule-hub-gated.log"),
                          recorded("rule-hub-no-revision.log")),
    "hub-throttled": Sample(recorded("rule-hub-throttled.log"),
                            raised("ValueError: 429 steps are too few")),
    "hub-missing": Sample(recorded("rule-hub-no-revision.log"),
                          recorded("rule-hub-throttled.log")),
    "hub-offline": Sample(recorded("rule-hub-offline.log"), raised("ValueError: the node is offline")),
    "address-refused": Sample(recorded("rule-address-refused.log"),
                              raised("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='h', port=443): Max "
                                     "retries exceeded with url: /m (Caused by ConnectTimeoutError())")),
    "hub-unreachable": Sample(recorded("modelscope-unreachable.log"),
                              raised("ValueError: 数据格式不对")),
    "deepspeed-mismatch": Sample(first_of("deepspeed-mismatch"),
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
    "metric-for-best": Sample(first_of("metric-for-best"), raised("KeyError: 'eval'")),
    "time-limit": Sample(first_of("time-limit"),
                         first_of("slurm-cancelled")),
    "preempted": Sample(first_of("preempted"),
                        "preemption is enabled: signal USR1 will be sent\n" + PLAIN),
    "node-failure": Sample(first_of("node-failure"),
                           "no node has failed so far\n" + PLAIN),
    "slurm-cancelled": Sample(first_of("slurm-cancelled"),
                              "job 77 will be cancelled at 04:12\n" + PLAIN),
    "submission": Sample(first_of("submission"),
                         "srun: error: node3: task 0: Exited with exit code 1\n" + PLAIN),
    "node-died": Sample(first_of("node-died"),
                        first_of("ray-actor")),
    "ray-actor": Sample(first_of("ray-actor"),
                        raised("ValueError: an actor has no critic")),
    "signal-handler": Sample(first_of("signal-handler"), "submitit WARNING (2022-03-31 21:08:23,557) - Bypassing signal SIGTERM\n",
                             exit_code=0),
    "signal-exception": Sample(recorded("rule-signal-exception.log"), raised("ValueError: the signal is too weak")),
    "terminated": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-15),
    "closing-signal": Sample(first_of("closing-signal"), "process 9000 is closing, no signal was sent\n"),
    "bus-error": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-7),
    "bus-error-line": Sample(recorded("rule-bus-error-line.log"),
                             "the bus arrived, error 0\n"),
    "segfault": Sample(recorded("rule-segfault.log"),
                       "error of the segmentation head: 0.3\nusage: train.py [-h] [--lr LR]\n"
                       "                [--crash {exit,SIGSEGV,SIGKILL}] [--error ERROR]\n"),
    "segfault-exit": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=139),
    "native-exception": Sample(first_of("native-exception"),
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
    "exit-call": Sample(recorded("rule-exit-call.log"), PLAIN),
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
ALSO_RECORDED = (
    ("rule-hub-forbidden.log", "hub-refused"), ("rule-hub-unauthorized-missing.log", "hub-refused"),
    ("rule-modelscope-forbidden.log", "hub-refused"), ("rule-modelscope-missing.log", "hub-missing"),
    ("rule-modelscope-throttled.log", "hub-throttled"),
)
"""What the clients of hubs printed when a server answered so."""
