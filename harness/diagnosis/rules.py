"""The situations that are told apart, as data: here and in rules_machine.py alone a pattern stands for a cause.

Order counts: of several rules that match a text, the first one is taken. references/failure-triage.md is rendered
from here. Patterns are held against bounded texts and repeat nothing that repeats within, so that none is slow.
"""

from __future__ import annotations

from harness.diagnosis.model import Role, Rule, Where
from harness.diagnosis.model import make_rule as _rule
from harness.diagnosis.rules_machine import DEVICE, MEMORY, RANKS
from harness.record.vocabulary import PrimaryCause as C

_EXCEPTION, _LINE, _EXIT, _METRIC = Where.EXCEPTION, Where.LINE, Where.EXIT, Where.METRIC
_EFFECT = Role.CONSEQUENCE

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
    _rule("nan", C.NAN_INF, _EXCEPTION, r"(?i)returned nan values|contains either `inf`"
          r"|FloatingPointError(?!: Minimum loss)"
          r"|cannot convert float (?:NaN|infinity)|(?:loss|grad\w{0,10}|logits).{0,40}\b(?:nan|inf|non-?finite)\b"
          r"|\b(?:nan|non-?finite)\b.{0,30}(?:loss|grad|logits)|Input contains NaN", 0.92,
          "A value became NaN or infinite.", "find-first-nan lower-lr",
          rules_out="the call that raised: the value was not finite before it"),
    _rule("nan-logged", C.NAN_INF, _LINE, r"(?i)\bloss\w{0,20}['\"]?\s{0,3}[:= ]\s{0,3}['\"]?"
          r"(?:nan|[-+]?inf(?:inity)?)\b", 0.75, "The loss became NaN or infinite while training went on.",
          "find-first-nan lower-lr"),
    _rule("loss-scale", C.OPTIMIZATION_DIVERGENCE, _EXCEPTION, r"(?i)loss scale already at minimum"
          r"|Minimum loss scale reached"
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
          r" error|unauthorized|forbidden)|用户未登录|User not logged in|\[E300[12]\]|AccessDenied|invalid credentials"
          r"|Access to model .{1,200} is restricted|authentication token (?:does not exist|is invalid)", 0.92,
          "The hub or the cloud refused access, which hubs also answer where a private repository or none is.",
          "hub-login fix-reference"),
    _rule("hub-throttled", C.CLOUD_PERMISSIONS_QUOTA, _EXCEPTION, r"(?i)\b429\b.{0,60}(?:client error|too many)"
          r"|rate ?limit|\[E1021\]|请求过于频繁", 0.9,
          "The hub refused because of too many requests.", "local-copy", infra=True),
    _rule("hub-missing", C.CONFIG_ERROR, _EXCEPTION, r"(?i)RepositoryNotFoundError|NotExistError|\b404\b.{0,60}client"
          r" error|Client error '404|404 Not Found: |does not exist or is not accessible|获取模型版本失败"
          r"|模型不存在|数据集不存在|is not a (?:valid|local) (?:model|folder)|HFValidationError"
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
          r"|pydantic\w{0,20}.{0,40}ValidationError|MisconfigurationException(?!.{0,200}monitored key)"
          r"|ScannerError|TOMLDecodeError", 0.9,
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
    _rule("metric-for-best-key", C.EVALUATION_MISMATCH, _EXCEPTION, r"^KeyError: '", 0.92,
          "The metric that the best model is chosen by is not what the evaluation yields.", "fix-metric",
          frames=r"metrics\[metric_to_check\]"),
    _rule("metric-for-best", C.EVALUATION_MISMATCH, _EXCEPTION, r"metric_for_best_model|not found in the evaluation"
          r" metrics|[Ee]arly ?[Ss]topping conditioned on metric|could not find the monitored key", 0.92,
          "A metric that a decision needs is not what the evaluation yields.", "fix-metric"),
)
_SCHEDULER = (
    _rule("time-limit", C.INTERRUPTED, _LINE, r"CANCELLED AT [^\n]{0,60} DUE TO TIME LIMIT|DEADLINE EXCEEDED", 0.97,
          "The scheduler's time limit ended the job.", "resume-longer", rules_out="a crash: it ran until the limit"),
    _rule("preempted", C.INTERRUPTED, _LINE, r"DUE TO (?:PREEMPTION|JOB REQUEUE)|(?i:\bpreempted by\b"
          r"|\b(?:node|job|instance|vm|task|pod|worker) (?:was|has been|is being) preempted|\bpreemption notice\b)",
          0.95, "The scheduler took the resources back.", "resume",
          infra=True),
    _rule("node-failure", C.PIPELINE_ORCHESTRATION, _LINE, r"DUE TO NODE FAIL|Node failure on|NODE_FAIL"
          r"|(?:JOB|STEP) \S{1,60} ON \S{1,100} UNCORRECTABLE MEMORY ERROR", 0.95,
          "A node failed.", "resume", infra=True),
    _rule("slurm-cancelled", C.INTERRUPTED, _LINE, r"(?:JOB|STEP) [\d._+]{1,40}\S{0,20}(?: ON \S{1,100})?"
          r" CANCELLED AT", 0.8,
          "The scheduler cancelled the job or its step.", "resume", role=_EFFECT),
    _rule("node-died", C.PIPELINE_ORCHESTRATION, _EXCEPTION, r"NodeDiedError|because its node has died"
          r"|Owner's node has crashed", 0.9, "A node failed.", "resume",
          infra=True),
    _rule("submission", C.PIPELINE_ORCHESTRATION, _LINE, r"(?:sbatch|srun|salloc): error: (?:Batch job|Unable to"
          r" (?:create|allocate|confirm)|Job violates|invalid partition)|ImagePullBackOff|CrashLoopBackOff", 0.9,
          "The scheduler did not start the job.", "fix-submission"),
    _rule("ray-actor", C.PIPELINE_ORCHESTRATION, _EXCEPTION, r"ActorDiedError|RayActorError|WorkerCrashedError"
          r"|ActorUnavailableError", 0.6, "A Ray worker is gone; what ended it is not in the logs.",
          "per-rank-logs", role=_EFFECT),
    _rule("signal-handler", C.INTERRUPTED, _LINE, r"(?i)(?:caught|received|got|handling) (?:signal (?:15|2|10|12"
          r"|SIGTERM|SIGINT|SIGHUP|SIGUSR\d)|SIG(?:TERM|INT|HUP|USR\d))\b|\bSIGTERM received", 0.8,
          "The process was asked to end and did so.", "resume", role=_EFFECT),
    _rule("signal-exception", C.INTERRUPTED, _EXCEPTION, r"SignalException|KeyboardInterrupt|got signal: (?:15|2)\b",
          0.7, "The process was asked to end.", "resume", role=_EFFECT),
    _rule("terminated", C.INTERRUPTED, _EXIT, r"^signal SIG(?:TERM|INT|HUP|USR1|USR2)", 0.7,
          "The process was ended from outside.", "resume", role=_EFFECT),
    _rule("closing-signal", C.INTERRUPTED, _LINE, r"Sending process \d+ closing signal|Closing process \d+ via signal"
          r"|death signal, shutting down",
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
    _rule("native-exception", C.PROCESS_CRASH, _LINE, r"terminate called after throwing|terminate called without"
          r"|libc\+\+abi: terminating ", 0.7,
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
          r"(?:TimeoutError|BrokenProcessPool)|asyncio\S{0,30}(?:TimeoutError|CancelledError)"
          r"|(?:ray\.exceptions\.)?RayTaskError"
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
    *_CONFIG[:1], *MEMORY, *DEVICE, *RANKS, *_DATA[:2], *_HUB, *_FILES, *_DATA[2:4], *_ROLLOUT_RULES,
    *_NUMBERS, *_CONFIG[1:], *_DATA[4:], *_SCHEDULER, *_PROCESS, *_METRICS, *_LAST,
)
"""Every rule, the more telling before the more general."""


def match_rule(where: Where, text: str, frames: str = "") -> Rule | None:
    """The first rule whose pattern, and frames where it has some, are found."""
    for rule in RULES:
        if rule.where is where and rule.pattern.search(text) and (rule.frames is None or rule.frames.search(frames)):
            return rule
    return None
