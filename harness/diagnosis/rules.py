"""The situations that are told apart, as data: the only place where a pattern stands for a cause.

Order counts: of several rules that match a text, the first one is taken. references/failure-triage.md is rendered
from here. Patterns are held against bounded texts and repeat nothing that repeats within, so that none is slow.
"""

from __future__ import annotations

import re

from harness.diagnosis.model import Role, Rule, Where
from harness.record.vocabulary import PrimaryCause as C

_EXCEPTION, _LINE, _EXIT, _METRIC = Where.EXCEPTION, Where.LINE, Where.EXIT, Where.METRIC
_ROLLOUT = r"(?i)rollout|\bgenerate\b|_generate\b|decode_|\bsampler?\b|kv_?cache|prefill|vllm|sglang"
_TRAIN = r"(?i)stage=train|train_step|training_step|train_loop|backward|optimizer|optim/|compute_loss|in train\b"


def _rule(id: str, cause: C, where: Where, pattern: str, confidence: float, says: str, fixes: str = "", *,
          rules_out: str = "", role: Role = Role.CAUSE, frames: str | None = None, infra: bool = False,
          may_pass: bool = False) -> Rule:
    return Rule(id=id, cause=cause, where=where, pattern=re.compile(pattern), confidence=confidence, says=says,
                fixes=tuple(fixes.split()), rules_out=rules_out, role=role,
                frames=None if frames is None else re.compile(frames), is_infrastructure=infra, may_pass=may_pass)


_EFFECT = Role.CONSEQUENCE

_MEMORY = (
    _rule("oom-batch-search", C.OOM, _EXCEPTION, r"No executable batch size found", 0.9,
          "An automatic search for a batch size that fits came down to zero.", "smaller-microbatch",
          rules_out="the setting of the batch size: each size ran out of memory", role=_EFFECT),
    _rule("capture-oom", C.OOM, _EXCEPTION, r"(?i)out of memory while capturing", 0.95,
          "Capturing the decode graph ran out of accelerator memory (AReno: capture).",
          "fewer-running-prompts eager-decode", rules_out="a defect of the graph: the capture lacked memory"),
    _rule("oom-rollout", C.OOM, _EXCEPTION, r"(?i)OutOfMemoryError|(?:CUDA|HIP|MPS|NPU|XPU)[\w ]{0,20} out of memory"
          r"|RESOURCE_EXHAUSTED", 0.95, "The rollout ran out of accelerator memory (AReno: rollout OOM).",
          "fewer-running-prompts drop-rollout-state lower-token-limit", frames=_ROLLOUT,
          rules_out="host memory: the accelerator's allocator refused; training memory: the stage was the rollout"),
    _rule("oom-train", C.OOM, _EXCEPTION, r"(?i)OutOfMemoryError|(?:CUDA|HIP|MPS|NPU|XPU)[\w ]{0,20} out of memory"
          r"|RESOURCE_EXHAUSTED", 0.95, "The training step ran out of accelerator memory (AReno: train OOM).",
          "smaller-microbatch smaller-mini-bs activation-checkpointing shard-optimizer lower-token-limit",
          frames=_TRAIN, rules_out="host memory: the accelerator's allocator refused"),
    _rule("oom-device", C.OOM, _EXCEPTION, r"(?i)OutOfMemoryError|(?:CUDA|HIP|MPS|NPU|XPU)[\w ]{0,20} out of memory"
          r"|RESOURCE_EXHAUSTED|CUBLAS_STATUS_ALLOC_FAILED", 0.92, "The accelerator ran out of memory.",
          "smaller-microbatch activation-checkpointing lower-token-limit",
          rules_out="host memory: the accelerator's allocator refused"),
    _rule("oom-host-alloc", C.OOM, _EXCEPTION, r"^MemoryError\b|DefaultCPUAllocator|Cannot allocate memory"
          r"|ArrayMemoryError|std::bad_alloc|can't start new thread", 0.9,
          "The process was refused host memory.", "less-host-memory",
          rules_out="accelerator memory: the host's allocator refused"),
    _rule("oom-host-confirmed", C.OOM, _LINE, r"Out of memory: Killed process|Memory cgroup out of memory"
          r"|oom[-_]kill event|oom-kill:constraint|OOM Killed|OOMKilled|[Ee]xceeded (?:job|step) memory limit", 0.97,
          "The host ran out of memory and the kernel or its cgroup killed a process.", "less-host-memory",
          rules_out="accelerator memory: the kernel names host memory"),
    _rule("oom-host-suspected", C.OOM, _EXIT, r"^signal SIGKILL", 0.6,
          "A process was killed by SIGKILL from outside; that is most likely, and only suspected to be, the host's "
          "OOM killer.", "confirm-host-oom less-host-memory",
          rules_out="accelerator memory: that ends in an exception, never in SIGKILL"),
)
_DEVICE = (
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
    _rule("gpu-lost", C.CUDA_RUNTIME, _LINE, r"fallen off the bus|uncorrectable ECC", 0.9,
          "The driver reported that the accelerator is lost or defective.", "other-host", infra=True),
    _rule("gpu-xid", C.CUDA_RUNTIME, _LINE, r"NVRM: Xid", 0.8,
          "The driver reported a fault of the accelerator, which a program can bring about as well.", "other-host"),
    _rule("cuda-missing", C.CUDA_RUNTIME, _EXCEPTION, r"No CUDA GPUs are available|not compiled with CUDA"
          r"|Found no NVIDIA driver|driver version is insufficient|no kernel image is available"
          r"|invalid device ordinal", 0.92, "The program asked for an accelerator that this process cannot use.",
          "check-devices"),
    _rule("cuda-error", C.CUDA_RUNTIME, _EXCEPTION, r"CUDA error|AcceleratorError|CUBLAS_STATUS|CUDNN_STATUS"
          r"|cudaError|HIP error", 0.8, "A call into the accelerator's runtime failed.", "blocking-launches"),
)
_DISTRIBUTED = (
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
          r"|taking the entire process down", 0.6,
          "A collective timed out: a rank did not take part in it, and nothing in the logs says why.",
          "collective-debug per-rank-logs", role=_EFFECT),
    _rule("collective-timeout", C.NCCL_DISTRIBUTED, _EXCEPTION, r"(?i)Timed out waiting \d+ms|collective.{0,40}timeout"
          r"|Watchdog|wait timeout after \d+ms", 0.6,
          "A collective timed out: a rank did not take part in it, and nothing in the logs says why.",
          "collective-debug per-rank-logs", role=_EFFECT),
    _rule("pipe-lost", C.PROCESS_CRASH, _EXCEPTION, r"^(?:ConnectionResetError|BrokenPipeError|EOFError)\b", 0.5,
          "Another process of the program went away; what ended it is not in its own output.", "per-rank-logs",
          role=_EFFECT, frames=r"multiprocessing[/\\]\w"),
    _rule("connection-lost", C.CLOUD_PERMISSIONS_QUOTA, _EXCEPTION, r"^(?:ConnectionReset|ConnectionAborted)Error\b"
          r"|RemoteDisconnected|IncompleteRead|ChunkedEncodingError|RemoteProtocolError|ServerDisconnectedError"
          r"|^\(?'?Connection aborted|ConnectionError: \('Connection aborted", 0.85,
          "A connection to a service was lost while it was used.", "retry-same local-copy",
          rules_out="another rank: its loss is told by the communication library", infra=True),
    _rule("peer-gone", C.NCCL_DISTRIBUTED, _EXCEPTION, r"(?i)Connection closed by peer|Connection reset by peer"
          r"|NCCL communicator was aborted|remote process exited|Broken pipe|recvValue failed|Socket closed"
          r"|failed to recv, got 0 bytes|ncclRemoteError", 0.5,
          "Another process of the group went away; what ended it is not in the logs.", "per-rank-logs", role=_EFFECT),
    _rule("rendezvous", C.NCCL_DISTRIBUTED, _EXCEPTION, r"(?i)Rendezvous\w{0,30}Error|DistStoreError|DistNetworkError"
          r"|client socket has timed out|Timed out after \d+ seconds waiting for clients", 0.85,
          "The processes of the group did not find each other.", "check-rendezvous"),
    _rule("nccl-error", C.NCCL_DISTRIBUTED, _EXCEPTION, r"(?i)NCCL (?:error|WARN)|DistBackendError|ncclSystemError"
          r"|ncclInternalError|ncclUnhandledCudaError", 0.75, "The communication library failed.",
          "collective-debug"),
    _rule("elastic-agent", C.NCCL_DISTRIBUTED, _EXCEPTION, r"ChildFailedError|ProcessRaisedException"
          r"|ProcessExitedException", 0.3, "The launcher reports that a worker failed.", "per-rank-logs", role=_EFFECT),
)
_DATA = (
    _rule("dataset-cache", C.DATA_PIPELINE, _EXCEPTION, r"(?i)dataset cache is|invalid cached dataset"
          r"|NonMatchingSplitsSizes|NonMatchingChecksum|ExpectedMoreDownloadedFiles|ArrowInvalid"
          r"|Couldn't find (?:a )?cache", 0.9, "The dataset's cache is missing, incomplete or of another version "
          "(AReno: dataset cache).", "clear-dataset-cache"),
    _rule("dataset-contract", C.DATA_PIPELINE, _EXCEPTION, r"(?i)dataset row must|rows? must contain|DPO dataset"
          r"|SFT dataset|must return rows with|no valid training rows|returned no training records"
          r"|dataset prompts exceed|load_training_dataset|--dataset-loader-fn", 0.95,
          "The rows do not meet the algorithm's contract (AReno: dataset).", "fix-loader",
          rules_out="the model and the command: the first row was refused before any training"),
    _rule("shared-memory", C.DATA_PIPELINE, _EXCEPTION, r"(?i)bus error|shared memory|shm_open", 0.92,
          "Shared memory (/dev/shm) ran out, which ends its users by SIGBUS.", "more-shared-memory",
          rules_out="host memory as a whole: the limit is that of /dev/shm", may_pass=True),
    _rule("dataloader-worker", C.DATA_PIPELINE, _EXCEPTION, r"DataLoader worker \(pid(?:\(s\))? [\d, ]{1,200}\) (?:is"
          r" killed|exited)", 0.8, "A DataLoader worker died; what ended it is not in its own output.",
          "loader-in-process confirm-host-oom", may_pass=True),
    _rule("dataset-schema", C.DATA_PIPELINE, _EXCEPTION, r"^(?:KeyError|IndexError|TypeError|ValueError)\b",
          0.75, "Code that reads the data met a row that it cannot use.", "inspect-data",
          frames=r"__getitem__|__next__|_worker_loop|collate|(?i:dataset|data_?loader|preprocess|tokenize_)"
                 r"|\b(?:batch|row|example|sample)s?\[['\"]"),
    _rule("data-parse", C.DATA_PIPELINE, _EXCEPTION, r"JSONDecodeError|UnicodeDecodeError|DatasetGenerationError"
          r"|ParserError|EmptyDataError|UnidentifiedImageError|num_samples should be a positive integer", 0.8,
          "An input file cannot be read as what it should be.", "inspect-data"),
)
_ROLLOUT_RULES = (
    _rule("reward", C.DATA_PIPELINE, _EXCEPTION, r"^[\w.]", 0.9,
          "The reward function raised on a record (AReno: reward).", "fix-reward",
          frames=r"(?i)score_reward|reward_fn|reward_func|/\w*reward\w*\.py|in compute_score",
          rules_out="the model and the rollout: completions were there to be scored"),
    _rule("agent-filtered", C.CONFIG_ERROR, _EXCEPTION, r"all agent trajectories were filtered", 0.9,
          "No trajectory of the agent could be used: the context is too small for it, or the agent fails "
          "(AReno: rollout).", "inspect-agent"),
    _rule("rollout-engine", C.PROCESS_CRASH, _EXCEPTION, r"(?i)rollout (?:scheduler|engine|worker)|generation thread"
          r"|EngineDeadError|AsyncEngineDeadError", 0.6,
          "The rollout's engine is dead; what ended it is not in the logs (AReno: rollout).", "per-rank-logs",
          role=_EFFECT),
)
_NUMBERS = (
    _rule("nan", C.NAN_INF, _EXCEPTION, r"(?i)returned nan values|contains either `inf`|FloatingPointError"
          r"|cannot convert float (?:NaN|infinity)|(?:loss|grad\w{0,10}|logits).{0,40}\b(?:nan|inf|non-?finite)\b"
          r"|\b(?:nan|non-?finite)\b.{0,30}(?:loss|grad|logits)|Input contains NaN", 0.92,
          "A value became NaN or infinite.", "find-first-nan lower-lr",
          rules_out="the call that raised: the value was not finite before it"),
    _rule("nan-logged", C.NAN_INF, _LINE, r"(?i)\bloss\w{0,20}['\"]?\s{0,3}[:= ]\s{0,3}['\"]?"
          r"(?:nan|[-+]?inf(?:inity)?)\b", 0.75, "The loss became NaN or infinite while training went on.",
          "find-first-nan lower-lr"),
    _rule("loss-scale", C.OPTIMIZATION_DIVERGENCE, _EXCEPTION, r"(?i)loss scale already at minimum"
          r"|loss (?:has )?(?:diverged|exploded)", 0.9,
          "Gradients overflowed at every loss scale: the optimization diverged.", "lower-lr"),
)
_FILES = (
    _rule("disk-full", C.IO_CHECKPOINT, _EXCEPTION, r"(?i)no space left on device|ENOSPC|unexpected pos \d+ vs \d+"
          r"|file write failed", 0.95, "A file system is full.", "free-space",
          rules_out="memory: the write of a file was refused"),
    _rule("disk-full-line", C.IO_CHECKPOINT, _LINE, r"(?i)no space left on device", 0.9, "A file system is full.",
          "free-space"),
    _rule("disk-quota", C.CLOUD_PERMISSIONS_QUOTA, _EXCEPTION, r"(?i)disk quota exceeded|quota (?:was )?exceeded"
          r"|insufficient quota|ResourceQuota", 0.92, "A quota is used up.", "raise-quota"),
    _rule("checkpoint-damaged", C.IO_CHECKPOINT, _EXCEPTION, r"(?i)PytorchStreamReader|SafetensorError|HeaderTooLarge"
          r"|MetadataIncompleteBuffer|UnpicklingError|invalid load key|Error\(s\) in loading state_dict"
          r"|not a valid checkpoint|Can't find a valid checkpoint", 0.88,
          "A checkpoint cannot be loaded: it is damaged or belongs to another model.", "other-checkpoint"),
    _rule("read-only", C.IO_CHECKPOINT, _EXCEPTION, r"(?i)read-only file system|PermissionError|Permission denied",
          0.9, "The process may not read or write a path.", "fix-permission"),
    _rule("permission-line", C.IO_CHECKPOINT, _LINE, r"^[^ ]{1,200}: [^\n]{0,300}: Permission denied$", 0.8,
          "The process may not read, write or execute a path.", "fix-permission"),
    _rule("open-files", C.IO_CHECKPOINT, _EXCEPTION, r"Too many open files", 0.9,
          "The process used up its file descriptors.", "more-files"),
    _rule("io-error", C.IO_CHECKPOINT, _EXCEPTION, r"Input/output error|Stale file handle|Transport endpoint", 0.85,
          "The storage failed.", "other-host", infra=True),
    _rule("checkpoint-unreadable", C.IO_CHECKPOINT, _EXCEPTION, r"^(?:OSError|EOFError|ValueError|KeyError"
          r"|AttributeError)\b|Invalid magic number", 0.75, "A checkpoint cannot be read: it is damaged, cut short or "
          "not what the program takes it for.", "other-checkpoint", frames=r"torch\.load\(|safe_open\(|load_file\("),
)
_HUB = (
    _rule("hub-refused", C.CLOUD_PERMISSIONS_QUOTA, _EXCEPTION, r"(?i)GatedRepoError|\b(?:401|403)\b.{0,60}(?:client"
          r" error|unauthorized|forbidden)|用户未登录|AccessDenied|invalid credentials|Access to model .{1,200} is"
          r" restricted", 0.92, "The hub or the cloud refused access.", "hub-login"),
    _rule("hub-throttled", C.CLOUD_PERMISSIONS_QUOTA, _EXCEPTION, r"(?i)\b429\b.{0,60}(?:client error|too many)"
          r"|rate limit", 0.9, "The hub refused because of too many requests.", "local-copy", infra=True),
    _rule("hub-missing", C.CONFIG_ERROR, _EXCEPTION, r"(?i)RepositoryNotFoundError|NotExistError|\b404\b.{0,60}client"
          r" error|模型不存在|数据集不存在|is not a (?:valid|local) (?:model|folder)|HFValidationError"
          r"|DatasetNotFoundError", 0.9, "What the hub was asked for is not there.", "fix-reference"),
    _rule("hub-offline", C.CLOUD_PERMISSIONS_QUOTA, _EXCEPTION, r"(?i)offline mode is enabled|OfflineModeIsEnabled"
          r"|outgoing traffic has been disabled", 0.92,
          "What is not in the cache was asked for while the environment forbids to fetch it.", "local-copy",
          rules_out="the network: nothing was sent"),
    _rule("address-refused", C.CLOUD_PERMISSIONS_QUOTA, _EXCEPTION, r"(?i)ConnectionRefusedError|connection refused"
          r"|certificate[_ ]verify[_ ]failed", 0.85,
          "An address that the program was given refuses connections, or its certificate is not trusted.",
          "local-copy retry-same"),
    _rule("hub-unreachable", C.CLOUD_PERMISSIONS_QUOTA, _EXCEPTION, r"(?i)gaierror|NameResolutionError"
          r"|Failed to resolve|Name or service not known|Temporary failure in name resolution|Network is unreachable"
          r"|\[E1020\]|\[E1001\]|下载.{0,20}(?:时限|超时|失败)|重试后失败|下载速率|couldn't connect to|couldn't reach"
          r"|LocalEntryNotFoundError|Max retries exceeded|\b50[0234] Server Error|HTTP Error 50[0234]"
          r"|Deadline ?Exceeded|read timed out"
          r"|urlopen error|ConnectTimeout|ReadTimeout|RequestTimeoutError|DownloadDeadlineError|ProxyError", 0.92,
          "The model or dataset hub cannot be reached.", "local-copy retry-same",
          rules_out="the reference and the training: nothing was fetched that could be wrong", infra=True),
)
_CONFIG = (
    _rule("deepspeed-mismatch", C.CONFIG_ERROR, _EXCEPTION, r"(?i)DeepSpeed config values that mismatch", 0.95,
          "Command line and DeepSpeed config name different values for one setting.", "align-config",
          rules_out="an override without effect: the trainer refused both values"),
    _rule("wrong-flag", C.CONFIG_ERROR, _LINE, r": error: (?:unrecognized arguments|the following arguments are"
          r" required|argument [^:]{1,100}:|invalid choice|ambiguous option|one of the arguments)"
          r"|Error: (?:No such option|Got unexpected extra argument|Missing (?:option|argument|parameter)"
          r"|Invalid value)", 0.97, "The program refused its command line.", "fix-flag",
          rules_out="the training: the program ended before it began"),
    _rule("arguments-unused", C.CONFIG_ERROR, _EXCEPTION, r"(?i)specified arguments are not used|Could not override"
          r"|ConfigCompositionException|ConfigAttributeError|ConfigKeyError|MissingMandatoryValue|is not in struct"
          r"|pydantic\w{0,20}.{0,40}ValidationError|MisconfigurationException|ScannerError|TOMLDecodeError", 0.9,
          "The configuration was refused.", "fix-flag"),
    _rule("missing-module", C.CONFIG_ERROR, _EXCEPTION, r"^(?:ModuleNotFoundError|ImportError)|No module named", 0.95,
          "A Python module is missing or does not fit the others.", "install-module"),
    _rule("missing-module-line", C.CONFIG_ERROR, _LINE, r"python[\d.]*: (?:No module named|can't open file)"
          r"|Error while finding module specification", 0.92, "The interpreter did not find what it should run.",
          "install-module"),
    _rule("command-missing", C.CONFIG_ERROR, _LINE, r": (?:command )?not found$", 0.85,
          "A command is not installed or not on PATH.", "install-module"),
    _rule("missing-file", C.CONFIG_ERROR, _EXCEPTION, r"FileNotFoundError|No such file or directory"
          r"|NotADirectoryError|IsADirectoryError", 0.85, "A path that the run needs is not there.", "fix-path"),
    _rule("metric-for-best", C.EVALUATION_MISMATCH, _EXCEPTION, r"metric_for_best_model|not found in the evaluation"
          r" metrics|EarlyStopping conditioned on metric|early stopping conditioned on metric", 0.92,
          "A metric that a decision needs is not what the evaluation yields.", "fix-metric"),
)
_SCHEDULER = (
    _rule("time-limit", C.INTERRUPTED, _LINE, r"CANCELLED AT [^\n]{0,60} DUE TO TIME LIMIT|DEADLINE EXCEEDED", 0.97,
          "The scheduler's time limit ended the job.", "resume-longer", rules_out="a crash: it ran until the limit"),
    _rule("preempted", C.INTERRUPTED, _LINE, r"DUE TO (?:PREEMPTION|JOB REQUEUE)|(?i:\bpreempted by\b"
          r"|\b(?:node|job|instance|vm|task|pod|worker) (?:was|has been|is being) preempted|\bpreemption notice\b)",
          0.95, "The scheduler took the resources back.", "resume",
          infra=True),
    _rule("node-failure", C.PIPELINE_ORCHESTRATION, _LINE, r"DUE TO NODE FAIL|Node failure on|NODE_FAIL", 0.95,
          "A node failed.", "resume", infra=True),
    _rule("slurm-cancelled", C.INTERRUPTED, _LINE, r"(?:JOB|STEP) [\d._+]{1,40}\S{0,20} ON \S{1,100} CANCELLED AT", 0.8,
          "The scheduler cancelled the job or its step.", "resume", role=_EFFECT),
    _rule("node-died", C.PIPELINE_ORCHESTRATION, _EXCEPTION, r"NodeDiedError", 0.9, "A node failed.", "resume",
          infra=True),
    _rule("submission", C.PIPELINE_ORCHESTRATION, _LINE, r"(?:sbatch|srun|salloc): error: (?:Batch job|Unable to"
          r" (?:create|allocate|confirm)|Job violates|invalid partition)|ImagePullBackOff|CrashLoopBackOff", 0.9,
          "The scheduler did not start the job.", "fix-submission"),
    _rule("ray-actor", C.PIPELINE_ORCHESTRATION, _EXCEPTION, r"ActorDiedError|RayActorError|WorkerCrashedError"
          r"|ActorUnavailableError", 0.6, "A Ray worker is gone; what ended it is not in the logs.",
          "per-rank-logs", role=_EFFECT),
    _rule("signal-handler", C.INTERRUPTED, _LINE, r"(?i)(?:caught|received|got|handling) (?:signal (?:15|2|10|12"
          r"|SIGTERM|SIGINT|SIGUSR\d)|SIG(?:TERM|INT|USR\d))\b|\bSIGTERM received", 0.8,
          "The process was asked to end and did so.", "resume", role=_EFFECT),
    _rule("signal-exception", C.INTERRUPTED, _EXCEPTION, r"SignalException|KeyboardInterrupt|got signal: (?:15|2)\b",
          0.7, "The process was asked to end.", "resume", role=_EFFECT),
    _rule("terminated", C.INTERRUPTED, _EXIT, r"^signal SIG(?:TERM|INT|HUP|USR1|USR2)", 0.7,
          "The process was ended from outside.", "resume", role=_EFFECT),
    _rule("closing-signal", C.INTERRUPTED, _LINE, r"Sending process \d+ closing signal|death signal, shutting down",
          0.4, "The launcher ended the other workers.", "", role=_EFFECT),
)
_PROCESS = (
    _rule("bus-error", C.DATA_PIPELINE, _EXIT, r"^signal SIGBUS", 0.75,
          "The process was ended by SIGBUS: mostly shared memory (/dev/shm) or a file that was cut while it was "
          "mapped.", "more-shared-memory", may_pass=True),
    _rule("bus-error-line", C.DATA_PIPELINE, _LINE, r"Bus error", 0.8,
          "A process was ended by SIGBUS: mostly shared memory (/dev/shm).", "more-shared-memory", may_pass=True),
    _rule("segfault", C.PROCESS_CRASH, _LINE, r"Segmentation fault|Fatal Python error|SIGSEGV|free\(\): invalid"
          r"|double free|Illegal instruction|malloc\(\): ", 0.85, "Native code crashed.", "native-stack"),
    _rule("segfault-exit", C.PROCESS_CRASH, _EXIT, r"^signal SIG(?:SEGV|ILL|FPE)", 0.8, "Native code crashed.",
          "native-stack"),
    _rule("native-exception", C.PROCESS_CRASH, _LINE, r"terminate called after throwing|terminate called without", 0.7,
          "Native code raised what nothing caught.", "native-stack", role=_EFFECT),
    _rule("aborted", C.PROCESS_CRASH, _EXIT, r"^signal SIGABRT", 0.5, "The process aborted itself.", "native-stack",
          role=_EFFECT),
    _rule("hang-dump", C.STALLED, _LINE, r"^Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!", 0.85,
          "The program's own watch found it standing still and printed its stacks.", "native-stack"),
    _rule("stalled", C.STALLED, _EXIT, r"^stopped: timeout", 0.7,
          "The run was still going when its time was up, and nothing in the logs says why.",
          "stacks-of-hang longer-timeout"),
    _rule("cancelled", C.INTERRUPTED, _EXIT, r"^stopped: (?:cancelled|owner-lost|early-stop|cap)", 0.9,
          "The run was stopped by whoever started it.", "resume"),
    _rule("usage", C.CONFIG_ERROR, _EXIT, r"^exit code (?:2|64|126|127)$", 0.4,
          "The exit code is that of a refused command line or a missing command.", "fix-flag", role=_EFFECT),
    _rule("worker-exit", C.PROCESS_CRASH, _EXIT, r"^worker: exit code [1-9]", 0.4,
          "The launcher reports that a worker ended with an exit code of its own; its output is not in the logs given.",
          "per-rank-logs", role=_EFFECT, rules_out="the workers that were sent SIGTERM: the launcher ended them after"),
    _rule("thread-queue", C.PROCESS_CRASH, _EXCEPTION, r"^(?:_?queue\.Empty|StopIteration|concurrent\.futures\S{0,40}"
          r"(?:TimeoutError|BrokenProcessPool)|asyncio\S{0,30}(?:TimeoutError|CancelledError)|RayTaskError"
          r"|\S{0,40}RemoteTraceback|\S{0,30}CalledProcessError)", 0.3,
          "A part that others wait for did not answer.", "per-rank-logs", role=Role.CARRIER),
    _rule("exit-call", C.PROCESS_CRASH, _EXCEPTION, r"^SystemExit", 0.3, "The program ended itself.", "", role=_EFFECT),
)
_METRICS = (
    _rule("judged-not-finite", C.NAN_INF, _METRIC, r"^(?:loss|grad-norm|weights|forward|expect)-not-finite$"
          r"|^stopped-on-nan-inf$", 0.9,
          "Training went on with values that are not finite.", "find-first-nan lower-lr"),
    _rule("judged-no-signal", C.OPTIMIZATION_DIVERGENCE, _METRIC, r"^(?:no-learning-signal|no-effective-update"
          r"|weights-unchanged)$", 0.7, "Updates were executed without any learning in them.", "inspect-reward"),
    _rule("judged-no-update", C.DATA_PIPELINE, _METRIC, r"^(?:no-update-executed|no-response-tokens"
          r"|trajectories-all-filtered)$", 0.6,
          "No optimizer update was executed: every batch was empty or skipped, or nothing was left to train.",
          "inspect-data"),
    _rule("judged-dataset", C.DATA_PIPELINE, _METRIC, r"^dataset-", 0.9,
          "The dataset does not meet the algorithm's contract, so nothing was launched.", "fix-loader"),
    _rule("judged-hub", C.CLOUD_PERMISSIONS_QUOTA, _METRIC, r"^hub-unreachable$", 0.9,
          "The model or dataset hub cannot be reached, so nothing was launched.", "local-copy retry-same", infra=True),
    _rule("judged-device", C.CUDA_RUNTIME, _METRIC, r"^(?:gpu-missing|ran-on-cpu)$", 0.85,
          "The accelerator that was asked for was not used.", "check-devices"),
    _rule("judged-ranks", C.NCCL_DISTRIBUTED, _METRIC, r"^(?:world-size|rank-without)-", 0.6,
          "Ranks did not train together as they were asked to.", "per-rank-logs"),
    _rule("judged-save", C.IO_CHECKPOINT, _METRIC, r"^(?:checkpoint|reload|resume)-|^(?:disk-full"
          r"|save-path-unwritable|stopped-on-checkpoint-failure)$", 0.6,
          "The checkpoints do not hold what the run should have saved.", "free-space other-checkpoint"),
    _rule("judged-evaluation", C.EVALUATION_MISMATCH, _METRIC, r"^(?:sample|samples|reward|eval-loss|transcript)-"
          r"|^sources-disagree$", 0.6,
          "What was evaluated is not what the run reports.", "inspect-reward"),
    _rule("judged-expectation", C.EVALUATION_MISMATCH, _METRIC, r"^expect-", 0.6,
          "A number of the run is not what was expected of it (--expect).", "look-at-series"),
    _rule("stopped-on-divergence", C.OPTIMIZATION_DIVERGENCE, _METRIC,
          r"^stopped-on-(?:divergence|gradient-explosion)$", 0.8,
          "The loss or the gradient left its range, and --stop-on ended the run there.", "look-at-series lower-lr"),
    _rule("stopped-on-oom", C.OOM, _METRIC, r"^stopped-on-oom$", 0.8,
          "The run met an out-of-memory error, and --stop-on ended it there.",
          "smaller-microbatch fewer-running-prompts lower-token-limit"),
    _rule("stopped-on-stall", C.STALLED, _METRIC, r"^stopped-on-stalled$", 0.8,
          "The run stood still, and --stop-on ended it; stall-stacks.txt holds the stacks of its processes.",
          "stacks-of-hang"),
    _rule("stopped-on-slowness", C.STALLED, _METRIC, r"^stopped-on-slow-throughput$", 0.4,
          "Steps became much slower than they had been, and --stop-on ended the run.", "look-at-series"),
    _rule("stopped-on-crash", C.PROCESS_CRASH, _METRIC, r"^stopped-on-crash$", 0.5,
          "The output told of a process that crashed, and --stop-on ended the run.", "read-traceback"),
    _rule("judged-lost", C.PIPELINE_ORCHESTRATION, _METRIC, r"^(?:supervisor-lost|run-unfinished)$", 0.7,
          "The supervisor of the run was killed, and the run was ended with it.", "resume", infra=True),
    _rule("judged-command", C.CONFIG_ERROR, _METRIC, r"^(?:command|entrypoint|workdir|override|hub-asset|launch-failed"
          r"|early-stop-metric|lr-zero|target-not-reached|stale-metrics|foreign-metrics|retry-|waiver-expired"
          r"|capacity-invariant|trainer-not-ready)", 0.6,
          "The run did, or was refused for, what its command and configuration say, which is not what was asked.",
          "fix-flag"),
)
_LAST = (
    _rule("uncaught-exception", C.PROCESS_CRASH, _EXCEPTION, r"^[\w.]", 0.5,
          "An exception that no rule knows ended the program.", "read-traceback"),
)

RULES: tuple[Rule, ...] = (
    *_CONFIG[:1], *_MEMORY, *_DEVICE, *_DISTRIBUTED, *_DATA[:2], *_HUB, *_FILES, *_DATA[2:4], *_ROLLOUT_RULES,
    *_NUMBERS, *_CONFIG[1:], *_DATA[4:], *_SCHEDULER, *_PROCESS, *_METRICS, *_LAST,
)
"""Every rule, the more telling before the more general."""


def match_rule(where: Where, text: str, frames: str = "") -> Rule | None:
    """The first rule whose pattern, and frames where it has some, are found."""
    for rule in RULES:
        if rule.where is where and rule.pattern.search(text) and (rule.frames is None or rule.frames.search(frames)):
            return rule
    return None
