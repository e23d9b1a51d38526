"""The situations of the machine, as data: memory, accelerators, the ranks of a group. rules.py puts them in order."""

from __future__ import annotations

from harness.diagnosis.model import Role, Where
from harness.diagnosis.model import make_rule as _rule
from harness.record.vocabulary import PrimaryCause as C

_EXCEPTION, _LINE, _EXIT = Where.EXCEPTION, Where.LINE, Where.EXIT
_ROLLOUT = r"(?i)rollout|\bgenerate\b|_generate\b|decode_|\bsampler?\b|kv_?cache|prefill|vllm|sglang"
_TRAIN = r"(?i)stage=train|train_step|training_step|train_loop|backward|optimizer|optim/|compute_loss|in train\b"
_EFFECT = Role.CONSEQUENCE
_DEVICE_MEMORY = (r"(?i)(?<!ray\.exceptions\.)(?<!RayTaskError\()\bOutOfMemoryError"
                  r"|(?:CUDA|HIP|MPS|NPU|XPU)[\w :()\]]{0,30} out of memory"
                  r"|(?<!StatusCode\.)RESOURCE_EXHAUSTED|Resource exhausted: Out of memory"
                  r"|OOM when allocating tensor[^\n]{0,400}\bGPU|\[METAL\][^\n]{0,60}Insufficient Memory")
"""`CUDA out of memory`, `CUDA error: out of memory`, `cuda runtime error (2) : out of memory`,
`Triton Error [CUDA]: out of memory`. Ray's error of the same name is about the host, gRPC's about
a message that is too large."""

MEMORY = (
    _rule("oom-batch-search", C.OOM, _EXCEPTION, r"No executable batch size found", 0.9,
          "An automatic search for a batch size that fits came down to zero.", "smaller-microbatch",
          rules_out="the setting of the batch size: each size ran out of memory", role=_EFFECT),
    _rule("capture-oom", C.OOM, _EXCEPTION, r"(?i)out of memory while capturing", 0.95,
          "Capturing the decode graph ran out of accelerator memory (AReno: capture).",
          "fewer-running-prompts eager-decode", rules_out="a defect of the graph: the capture lacked memory"),
    _rule("capture-oom-within", C.OOM, _EXCEPTION, _DEVICE_MEMORY, 0.93,
          "Capturing a graph ran out of accelerator memory (AReno: capture).",
          "fewer-running-prompts eager-decode",
          frames=r"\bgraph\.(?:capture|warmup)\(|cuda[/\\]graphs\.py|capture_begin",
          rules_out="a defect of the graph: the capture lacked memory"),
    _rule("oom-rollout", C.OOM, _EXCEPTION, _DEVICE_MEMORY, 0.95,
          "The rollout ran out of accelerator memory (AReno: rollout OOM).",
          "fewer-running-prompts drop-rollout-state lower-token-limit", frames=_ROLLOUT,
          rules_out="host memory: the accelerator's allocator refused; training memory: the stage was the rollout"),
    _rule("oom-train", C.OOM, _EXCEPTION, _DEVICE_MEMORY, 0.95,
          "The training step ran out of accelerator memory (AReno: train OOM).",
          "smaller-microbatch smaller-mini-bs activation-checkpointing shard-optimizer lower-token-limit",
          frames=_TRAIN, rules_out="host memory: the accelerator's allocator refused"),
    _rule("oom-device", C.OOM, _EXCEPTION, _DEVICE_MEMORY + "|CUBLAS_STATUS_ALLOC_FAILED", 0.92,
          "The accelerator ran out of memory.",
          "smaller-microbatch activation-checkpointing lower-token-limit",
          rules_out="host memory: the accelerator's allocator refused"),
    _rule("oom-metal", C.OOM, _LINE,
          r"libc\+\+abi: terminating [^\n]{0,120}\[METAL\][^\n]{0,60}Insufficient Memory", 0.93,
          "The accelerator ran out of memory.", "smaller-microbatch activation-checkpointing lower-token-limit",
          rules_out="a defect of native code: it ended since Metal refused memory"),
    _rule("oom-host-alloc", C.OOM, _EXCEPTION, r"^MemoryError\b|DefaultCPUAllocator|Cannot allocate memory"
          r"|ArrayMemoryError|std::bad_alloc|can't start new thread", 0.9,
          "The process was refused host memory.", "less-host-memory",
          rules_out="accelerator memory: the host's allocator refused"),
    _rule("oom-host-ray", C.OOM, _EXCEPTION, r"node running low on memory|RayOutOfMemoryError"
          r"|ray\.exceptions\.OutOfMemoryError", 0.95, "The host ran out of memory and Ray's monitor killed a task.",
          "less-host-memory", rules_out="accelerator memory: Ray's monitor measures host memory"),
    _rule("oom-host-raylet", C.OOM, _LINE,
          r"\b[1-9]\d{0,6} Workers? \(tasks / actors\) killed due to memory pressure", 0.9,
          "The host ran out of memory and Ray's monitor killed a worker.", "less-host-memory",
          rules_out="accelerator memory: Ray's monitor measures host memory"),
    _rule("oom-host-confirmed", C.OOM, _LINE, r"Out of memory: Killed process|Memory cgroup out of memory"
          r"|oom[-_]kill event|oom-kill:constraint|OOM Killed|OOMKilled|[Ee]xceeded (?:job|step) memory limit"
          r"|srun: error: \S{1,200}: tasks? [\d,-]{1,200}: Out Of Memory", 0.97,
          "The host ran out of memory and the kernel or its cgroup killed a process.", "less-host-memory",
          rules_out="accelerator memory: the kernel names host memory"),
    _rule("oom-host-suspected", C.OOM, _EXIT, r"^signal SIGKILL", 0.6,
          "A process was killed by SIGKILL from outside; that is most likely, and only suspected to be, the host's "
          "OOM killer.", "confirm-host-oom less-host-memory",
          rules_out="accelerator memory: that ends in an exception, never in SIGKILL"),
)
DEVICE = (
    _rule("device-assert", C.CUDA_RUNTIME, _LINE, r"(?:block|thread): \[\d+,\d+,\d+\].{0,80}Assertion", 0.95,
          "A kernel's own assertion failed on the device, mostly an index beyond a table (labels, token ids, "
          "positions).", "check-indices blocking-launches",
          rules_out="the call that raised: kernels run later than they are called"),
    _rule("device-assert-reported", C.CUDA_RUNTIME, _EXCEPTION, r"device-side assert triggered", 0.7,
          "A later call reported an assertion that had failed on the device; the assertion itself is not in the log.",
          "blocking-launches check-indices", role=_EFFECT),
    _rule("capture", C.CUDA_RUNTIME, _EXCEPTION, r"(?i)when stream is capturing|cuda ?graph.{0,40}captur"
          r"|StreamCapture|_Map_base::at", 0.85, "Capturing or compiling a graph failed (AReno: capture).",
          "no-compile eager-decode"),
    _rule("compile", C.CUDA_RUNTIME, _EXCEPTION, r"torch\._dynamo|torch\._inductor|BackendCompilerFailed|InductorError"
          r"|triton\.compiler|CompilationError|PTXASError|ptxas|nvcc|LoweringException", 0.85,
          "Compiling a kernel or a graph failed (AReno: compile).", "no-compile"),
    _rule("gpu-hardware", C.CUDA_RUNTIME, _EXCEPTION, r"(?i)uncorrectable ECC|fallen off the bus|CUDA error: hardware"
          r"|NVLink error", 0.9, "The accelerator or its link is defective.", "other-host", infra=True),
    _rule("gpu-lost", C.CUDA_RUNTIME, _LINE, r"fallen off the bus|uncorrectable ECC"
          r"|NVRM: Xid \([^)]{1,60}\): (?:48|64|74|79|94|95),", 0.9,
          "The driver reported that the accelerator is lost or defective.", "other-host", infra=True),
    _rule("gpu-xid", C.CUDA_RUNTIME, _LINE, r"NVRM: Xid", 0.8,
          "The driver reported a fault of the accelerator, which a program can bring about as well.", "other-host",
          role=_EFFECT),
    _rule("cuda-error-line", C.CUDA_RUNTIME, _LINE,
          r"(?:watchdog thread terminated with exception: |^\s{0,8}what\(\):\s{1,4})CUDA error: (?!device-side)", 0.8,
          "A kernel failed on the device, which native code met first (the watchdog of NCCL, mostly).",
          "blocking-launches", rules_out="a collective that timed out: the error is the device's own"),
    _rule("device-assert-line", C.CUDA_RUNTIME, _LINE,
          r"(?:watchdog thread terminated with exception: |^\s{0,8}what\(\):\s{1,4})CUDA error: device-side", 0.7,
          "Native code reported an assertion that had failed on the device; the assertion itself is not in the log.",
          "blocking-launches check-indices", role=_EFFECT),
    _rule("cuda-missing", C.CUDA_RUNTIME, _EXCEPTION, r"No CUDA GPUs are available|not compiled with CUDA"
          r"|CUDA unknown error"
          r"|Found no NVIDIA driver|driver version is insufficient|no kernel image is available"
          r"|invalid device ordinal", 0.92, "The program asked for an accelerator that this process cannot use.",
          "check-devices"),
    _rule("cuda-error", C.CUDA_RUNTIME, _EXCEPTION, r"(?i:CUDA (?:runtime )?error)|Triton Error \["
          r"|AcceleratorError|CUBLAS_STATUS|CUDNN_STATUS"
          r"|cudaError|HIP error", 0.8, "A call into the accelerator's runtime failed.", "blocking-launches"),
)
RANKS = (
    _rule("dataloader-gone", C.DATA_PIPELINE, _EXCEPTION, r"^(?:ConnectionResetError|ConnectionRefusedError|EOFError"
          r"|BrokenPipeError)\b", 0.7, "A DataLoader worker went away while it handed over a batch; what ended it is "
          "not in its own output.", "loader-in-process confirm-host-oom", frames=r"_try_get_data|resource_sharer",
          rules_out="the network: the connection is that to a worker of the same process", may_pass=True),
    _rule("port-in-use", C.NCCL_DISTRIBUTED, _EXCEPTION, r"(?i)address already in use|EADDRINUSE", 0.95,
          "The port of the rendezvous or of a server is held by another process.", "other-port",
          rules_out="the network: the port is taken on this host"),
    _rule("port-in-use-line", C.NCCL_DISTRIBUTED, _LINE, r"(?i)address already in use|EADDRINUSE", 0.9,
          "The port of the rendezvous or of a server is held by another process.", "other-port"),
    _rule("nccl-watchdog", C.NCCL_DISTRIBUTED, _LINE, r"(?i)watchdog caught collective operation timeout"
          r"|watchdog thread terminated|heartbeat monitor timed out|Some NCCL operations have failed or timed out"
          r"|watchdog got stuck for \d+ seconds|taking the (?:entire process|rank) down", 0.6,
          "A collective timed out: a rank did not take part in it, and nothing in the logs says why.",
          "collective-debug per-rank-logs", role=_EFFECT),
    _rule("collective-timeout", C.NCCL_DISTRIBUTED, _EXCEPTION, r"(?i)Timed out waiting \d+ms|collective.{0,40}timeout"
          r"|Watchdog|wait timeout after \d+ms|Socket Timeout", 0.6,
          "A collective timed out: a rank did not take part in it, and nothing in the logs says why.",
          "collective-debug per-rank-logs", role=_EFFECT),
    _rule("pipe-lost", C.PROCESS_CRASH, _EXCEPTION, r"^(?:ConnectionResetError|BrokenPipeError|EOFError)\b", 0.5,
          "Another process of the program went away; what ended it is not in its own output.", "per-rank-logs",
          role=_EFFECT, frames=r"multiprocessing[/\\]\w"),
    _rule("connection-lost", C.CLOUD_PERMISSIONS_QUOTA, _EXCEPTION, r"^(?:ConnectionReset|ConnectionAborted)Error\b"
          r"|RemoteDisconnected|IncompleteRead|ChunkedEncodingError|RemoteProtocolError|ServerDisconnectedError"
          r"|^\(?'?Connection aborted|ConnectionError: \('Connection aborted"
          r"|^(?:\w{1,60}\.){0,9}(?:Connection|ClientOS|OS|IO|Protocol)Error: [^\n]{0,200}Connection reset by peer",
          0.85,
          "A connection to a service was lost while it was used.", "retry-same local-copy",
          rules_out="another rank: its loss is told by the communication library", infra=True),
    _rule("peer-gone", C.NCCL_DISTRIBUTED, _EXCEPTION, r"(?i)Connection closed by (?:remote )?peer"
          r"|Connection reset by peer"
          r"|NCCL communicator was aborted|remote process exited|Broken pipe|recvValue failed|Socket closed"
          r"|failed to recv, got 0 bytes|ncclRemoteError", 0.5,
          "Another process of the group went away; what ended it is not in the logs.", "per-rank-logs", role=_EFFECT),
    _rule("rendezvous", C.NCCL_DISTRIBUTED, _EXCEPTION, r"(?i)Rendezvous\w{0,30}Error|DistStoreError|DistNetworkError"
          r"|client socket has timed out|connectFullMesh failed|Timed out after \d+ seconds waiting for clients"
          r"|(?:\bgloo[/\\]|c10d|TCPStore)[^\n]{0,200}Connection refused", 0.85,
          "The processes of the group did not find each other.", "check-rendezvous"),
    _rule("nccl-error", C.NCCL_DISTRIBUTED, _EXCEPTION, r"(?i)NCCL (?:error|WARN)|DistBackendError|ncclSystemError"
          r"|ncclInternalError|ncclUnhandledCudaError", 0.75, "The communication library failed.",
          "collective-debug"),
    _rule("elastic-agent", C.NCCL_DISTRIBUTED, _EXCEPTION, r"ChildFailedError|ProcessRaisedException"
          r"|ProcessExitedException", 0.3, "The launcher reports that a worker failed.", "per-rank-logs", role=_EFFECT),
)
