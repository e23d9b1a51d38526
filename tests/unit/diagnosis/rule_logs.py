"""For every rule a log that needs it, and one that looks alike and must not meet it; messages as programs print them."""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """Two logs of one rule."""

    needs: str
    spares: str
    exit_code: int | None = 1
    stopped: str | None = None
    reasons: tuple[str, ...] = ()


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
    "oom-host-alloc": Sample(raised("MemoryError"), raised(OOM)),
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
    "compile": Sample(raised("torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:"),
                      raised("re.error: cannot compile the pattern at position 3")),
    "gpu-hardware": Sample(raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
                           raised("RuntimeError: CUDA error: invalid argument")),
    "gpu-lost": Sample("[12.1] NVRM: Xid (PCI:0000:65:00): 79, pid=912, GPU has fallen off the bus, error.\n",
                       "[12.1] NVRM: Xid (PCI:0000:65:00): 31, pid=912, MMU fault, error.\n"),
    "gpu-xid": Sample("[12.1] NVRM: Xid (PCI:0000:65:00): 31, pid=912, MMU fault, error.\n",
                      "NVRM: loading NVIDIA UNIX x86_64 Kernel Module 550.54, no error\n"),
    "cuda-missing": Sample(raised("RuntimeError: No CUDA GPUs are available"),
                           raised("RuntimeError: no data is available")),
    "cuda-error": Sample(raised("RuntimeError: CUDA error: an illegal memory access was encountered"),
                         "CUDA errors are checked for after each step\n" + PLAIN),
    "port-in-use": Sample(raised("torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
                                 "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: "
                                 "address already in use"),
                          raised("ValueError: this name is already in use")),
    "port-in-use-line": Sample("ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address "
                               "already in use\n", "error: the port is not in use\n"),
    "nccl-watchdog": Sample("[rank0]:[E110 10:25:07.100 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective "
                            "operation timeout: WorkNCCL(SeqNum=412, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600011 "
                            "milliseconds before timing out.\n", "watchdog: started with a timeout of 600 s\n" + PLAIN),
    "collective-timeout": Sample(raised("RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
                                        "1800000ms for recv operation to complete"),
                                 raised("TimeoutError: the user did not answer")),
    "pipe-lost": Sample(raised("ConnectionResetError: [Errno 104] Connection reset by peer",
                               "/usr/lib/python3.11/multiprocessing/connection.py:_recv: chunk = read(handle, remaining)"),
                        raised("ConnectionResetError: [Errno 104] Connection reset by peer",
                               "/usr/lib/python3.11/ssl.py:read: return self._sslobj.read(len, buffer)")),
    "connection-lost": Sample(raised("requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected("
                                     "'Remote end closed connection without response'))"),
                              raised("RuntimeError: [pair.cc:553] Connection reset by peer [127.0.0.1]:3991.")),
    "peer-gone": Sample(raised("RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:3991."),
                        raised("RuntimeError: the connection pool is closed by its owner")),
    "rendezvous": Sample(raised("torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the "
                                "C10d store has failed."), raised("ValueError: --rdzv-backend was not given")),
    "nccl-error": Sample(raised("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, unhandled "
                                "system error"), raised("ValueError: backend nccl is not a gloo one")),
    "elastic-agent": Sample("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n",
                            raised("ValueError: child 3 failed")),
    "dataset-cache": Sample(raised("RuntimeError: Dataset cache is incomplete; download it again"),
                            raised("RuntimeError: the KV cache is incomplete")),
    "dataset-contract": Sample(raised("ValueError: dataset row must contain `prompt`; use --dataset-loader-fn to normalize "
                                      "raw rows"), raised("ValueError: config must contain `lr`")),
    "shared-memory": Sample(raised("RuntimeError: DataLoader worker (pid 22) is killed by signal: Bus error. It is possible "
                                   "that dataloader's workers are out of shared memory."),
                            raised("RuntimeError: DataLoader worker (pid 22) is killed by signal: Killed.")),
    "dataloader-worker": Sample(raised("RuntimeError: DataLoader worker (pid(s) 5107) exited unexpectedly"),
                                "DataLoader worker 3 started (pid 5107), no errors\n" + PLAIN),
    "dataloader-gone": Sample(
        raised("ConnectionResetError: [Errno 104] Connection reset by peer",
               "/venv/torch/utils/data/dataloader.py:_try_get_data: data = self._data_queue.get(timeout=timeout)"),
        raised("ConnectionResetError: [Errno 104] Connection reset by peer", "/srv/job/client.py:read: sock.recv(9)")),
    "dataset-schema": Sample(raised("KeyError: 'labels'", DATA), raised("KeyError: 'HOME'", TRAIN)),
    "data-parse": Sample(raised("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
                         raised("ValueError: no decoder for this model")),
    "reward": Sample(raised("IndexError: list index out of range", "/srv/areno/api/rewards.py:score_reward_records: x",
                            "/home/user/badreward.py:reward_fn: return float(text[1])"),
                     raised("IndexError: list index out of range", TRAIN)),
    "agent-filtered": Sample(raised("RuntimeError: all agent trajectories were filtered (0 overlong, 4 invalid)"),
                             "agent trajectories were filtered: 1 of 8, no error\n" + PLAIN),
    "rollout-engine": Sample(raised("RuntimeError: MLX rollout scheduler failed"),
                             raised("RuntimeError: the rollout is too short")),
    "nan": Sample(raised("RuntimeError: Function 'MulBackward0' returned nan values in its 0th output."),
                  raised("ValueError: nanosecond timestamps are not supported")),
    "nan-logged": Sample("{'loss': nan, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.5}\n",
                         "{'loss': 1.5, 'eval_nan_count': 0, 'epoch': 0.5}\n"),
    "loss-scale": Sample(raised("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting "
                                "run."), "Grad overflow, reducing loss scale to 32768\n" + PLAIN),
    "disk-full": Sample(raised("OSError: [Errno 28] No space left on device"), raised(OOM)),
    "disk-full-line": Sample("tee: train.log: No space left on device\n", "no space between the words, error\n"),
    "disk-quota": Sample(raised("OSError: [Errno 122] Disk quota exceeded: '/home/u/ckpt'"),
                         raised("ValueError: maximum length exceeded")),
    "checkpoint-damaged": Sample(raised("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding "
                                        "central directory"), raised("RuntimeError: stream reader is closed")),
    "read-only": Sample(raised("PermissionError: [Errno 13] Permission denied: '/ckpt/step_1'"),
                        raised("ValueError: mode 'read' is not known")),
    "permission-line": Sample("bash: ./train.sh: Permission denied\n", "user: the operation was denied by policy\n"),
    "open-files": Sample(raised("OSError: [Errno 24] Too many open files: 'x'"), raised("ValueError: too many values")),
    "io-error": Sample(raised("OSError: [Errno 5] Input/output error"), raised("OSError: [Errno 28] No space left on "
                                                                              "device")),
    "hub-refused": Sample(raised("requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://hub"),
                          raised("ValueError: 401 rows are not divisible by 8")),
    "hub-throttled": Sample(raised("requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://h"),
                            raised("ValueError: 429 steps are too few")),
    "hub-missing": Sample(raised("requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://hub"),
                          raised("KeyError: 404")),
    "hub-offline": Sample(raised("huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/"
                                 "models/a/b: offline mode is enabled."), raised("ValueError: the node is offline")),
    "address-refused": Sample(raised("requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=9): Max "
                                     "retries exceeded with url: /m (Caused by NewConnectionError('Failed to establish a "
                                     "new connection: [Errno 111] Connection refused'))"),
                              raised("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='h', port=443): Max "
                                     "retries exceeded with url: /m (Caused by ConnectTimeoutError())")),
    "hub-unreachable": Sample(raised("modelscope_hub.errors.FileDownloadError: [E1001] 下载总时限已耗尽；已保存可继续下载的临时文件"),
                              raised("ValueError: 数据格式不对")),
    "deepspeed-mismatch": Sample("ValueError: Please correct the following DeepSpeed config values that mismatch "
                                 "TrainingArguments values:\n- ds optimizer.params.lr=0.0001 vs hf learning_rate=5e-06\n",
                                 raised("ValueError: DeepSpeed is not installed")),
    "wrong-flag": Sample("usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --no-such-flag\n",
                         "parser: error rate is 3 percent, no choice was invalid\n", exit_code=2),
    "arguments-unused": Sample(raised("ValueError: Some specified arguments are not used by the HfArgumentParser: "
                                      "['--lr']"), raised("ValueError: some rows are not used")),
    "missing-module": Sample(raised("ModuleNotFoundError: No module named 'flash_attn'"),
                             "the module flash_attn was not found, falling back\n" + PLAIN),
    "missing-module-line": Sample("/usr/bin/python: No module named train\n", "snake: no module was changed\n"),
    "command-missing": Sample("run.sh: line 2: torchrun: command not found\n", "cache entry not found, downloading\n",
                              exit_code=127),
    "missing-file": Sample(raised("FileNotFoundError: [Errno 2] No such file or directory: 'cfg.yaml'"),
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
    "signal-exception": Sample(raised("torch.distributed.elastic.multiprocessing.api.SignalException: Process 9 got signal: "
                                      "15"), raised("ValueError: the signal is too weak")),
    "terminated": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-15),
    "closing-signal": Sample("W0110 04:00:01.000000 8999 torch/distributed/elastic/multiprocessing/api.py:897] Sending "
                             "process 9000 closing signal SIGTERM\n", "process 9000 is closing, no signal was sent\n"),
    "bus-error": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-7),
    "bus-error-line": Sample("run.sh: line 3: 912 Bus error               (core dumped) python train.py\n",
                             "the bus arrived, error 0\n"),
    "segfault": Sample("Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n",
                       "error of the segmentation head: 0.3\nusage: train.py [-h] [--lr LR]\n"
                       "                [--crash {exit,SIGSEGV,SIGKILL}] [--error ERROR]\n"),
    "segfault-exit": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=139),
    "native-exception": Sample("terminate called after throwing an instance of 'std::runtime_error'\n",
                               "workers terminate after the last batch\n"),
    "aborted": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-6),
    "hang-dump": Sample("Timeout (0:05:00)!\nThread 0x00007f (most recent call first):\n", "Timeout: none, no error\n"),
    "stalled": Sample("step 1/9 loss 1.0\n", "step 1/9 loss 1.0\n" + PLAIN, exit_code=-15, stopped="timeout"),
    "cancelled": Sample("step 1/9 loss 1.0\n", PLAIN, exit_code=-15, stopped="cancelled"),
    "usage": Sample("step 1/9 loss 1.0\n", PLAIN, exit_code=2),
    "thread-queue": Sample(raised("_queue.Empty"), PLAIN),
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
    "uncaught-exception": Sample(PLAIN, raised("KeyError: 'labels'", DATA)),
}
EXIT_RULES = ("oom-host-suspected", "terminated", "bus-error", "segfault-exit", "aborted", "stalled", "cancelled", "usage")
