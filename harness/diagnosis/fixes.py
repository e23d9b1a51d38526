"""What can be done, as data. Only a `safe` fix may be applied without a person: it changes nothing that is trained.

`{retry}` stands for the command that retries the run (--retry-of), with the fix's override where that is a number;
`{out}` for the directory of the diagnosis; `{log}` for the log that holds the first causal error.
"""

from __future__ import annotations

from harness.diagnosis.model import Fix
from harness.record.vocabulary import FixRisk

_SAFE, _ASK, _DANGEROUS = FixRisk.SAFE, FixRisk.NEEDS_APPROVAL, FixRisk.DANGEROUS


def _fix(action: str, risk: FixRisk, impact: int, expected: str, validate: str, *, halves: tuple[str, ...] = (),
         doubles: str = "", approves: bool = False) -> Fix:
    return Fix(action=action, risk=risk, impact=impact, expected_impact=expected, validate=validate, halves=halves,
               doubles=doubles, approves=approves)


FIXES: dict[str, Fix] = {
    "retry-same": _fix("launch the same job again", _SAFE, 2, "succeeds where the cause has passed", "{retry}"),
    "resume": _fix("launch the job again from its last whole checkpoint", _SAFE, 3,
                   "goes on where the run was ended", "{retry}"),
    "resume-longer": _fix("ask the scheduler for more time, or launch again from the last checkpoint", _ASK, 3,
                          "the job ends before its limit", "{retry}"),
    "smaller-microbatch": _fix("halve the microbatch and double gradient accumulation, so that the global batch stays",
                               _ASK, 3, "activations need half the memory; what is trained stays the same", "{retry}",
                               halves=("per_device_train_batch_size",), doubles="gradient_accumulation_steps"),
    "smaller-mini-bs": _fix("halve the microbatch (AReno: --mini-bs; the batch of an update stays)", _ASK, 3,
                            "activations need half the memory; what is trained stays the same", "{retry}",
                            halves=("mini_bs",)),
    "fewer-running-prompts": _fix("halve the number of prompts that run at once (AReno: --max-running-prompts)", _ASK,
                                  3, "the rollout's cache needs half the memory; sample demand stays", "{retry}",
                                  halves=("max_running_prompts",)),
    "drop-rollout-state": _fix("free the rollout's state while training (AReno: --drop-rollout-state)", _ASK, 2,
                               "frees the cache between phases; semantics stay", "{retry}"),
    "activation-checkpointing": _fix("turn on activation checkpointing", _ASK, 2,
                                     "less activation memory for about a third more time", "{retry}"),
    "shard-optimizer": _fix("shard or offload the optimizer's state", _ASK, 2, "less memory per device", "{retry}"),
    "lower-token-limit": _fix("lower the token limits (max_new_tokens, max_context_len): changes what is trained",
                              _DANGEROUS, 2, "less memory per sequence, and another task", "{retry}",
                              halves=("max_new_tokens", "max_context_len", "max_length"), approves=True),
    "eager-decode": _fix("decode without graphs (AReno: --eager-decode)", _ASK, 2, "no capture; slower rollout",
                         "{retry}"),
    "less-host-memory": _fix("use less host memory: fewer DataLoader workers, no CPU offload, weights loaded once per "
                             "node, or a larger memory limit of the job", _ASK, 3, "the process stays within its limit",
                             "{retry}"),
    "confirm-host-oom": _fix("read the kernel's log and diagnose again with it", _SAFE, 1,
                             "confirms or excludes the host's OOM killer",
                             "dmesg -T > dmesg.txt && python -m harness diagnose {log} --dmesg dmesg.txt"),
    "more-shared-memory": _fix("enlarge /dev/shm (containers: --shm-size), or use fewer DataLoader workers", _ASK, 3,
                               "workers can hand over their batches", "df -h /dev/shm"),
    "loader-in-process": _fix("run once with num_workers=0", _ASK, 1,
                              "the error appears in the main process, with its traceback", "{retry}"),
    "check-indices": _fix("compare labels, token ids and positions with the sizes of their tables", _SAFE, 3,
                          "finds the index that is out of range", "{retry}"),
    "blocking-launches": _fix("run once with CUDA_LAUNCH_BLOCKING=1", _ASK, 1, "the traceback names the kernel's call",
                              "CUDA_LAUNCH_BLOCKING=1 {retry}"),
    "no-compile": _fix("run without compilation (torch: TORCHDYNAMO_DISABLE=1, MLX: MLX_DISABLE_COMPILE=1)", _ASK, 2,
                       "no graph to compile; slower", "{retry}"),
    "other-host": _fix("launch the same job on another host, and have this one checked", _ASK, 3,
                       "the same job on sound hardware", "{retry}"),
    "check-devices": _fix("compare CUDA_VISIBLE_DEVICES, driver and build with what the program asks for", _SAFE, 3,
                          "shows which of them is wrong", "python -c \"import torch; print(torch.cuda.is_available(), "
                          "torch.cuda.device_count(), torch.version.cuda)\""),
    "other-port": _fix("launch again on a free port (torchrun: --rdzv-endpoint localhost:0), or end the process that "
                       "holds it", _ASK, 3, "the rendezvous can listen", "{retry}"),
    "check-rendezvous": _fix("check that every node reaches the rendezvous endpoint and that all were started", _SAFE,
                             2, "shows the node that is missing", "{retry}"),
    "collective-debug": _fix("run once with TORCH_DISTRIBUTED_DEBUG=DETAIL and NCCL_DEBUG=INFO", _SAFE, 1,
                             "shows which rank misses which collective",
                             "TORCH_DISTRIBUTED_DEBUG=DETAIL NCCL_DEBUG=INFO {retry}"),
    "per-rank-logs": _fix("collect the logs of every rank (torchrun: --log-dir DIR --redirects 3) and diagnose them "
                          "together", _SAFE, 1, "shows the rank that failed first",
                          "python -m harness diagnose LOG_DIR --out-dir {out}"),
    "fix-loader": _fix("give a loader that yields rows of the contract (AReno: --dataset-loader-fn FILE)", _ASK, 3,
                       "the first row is accepted", "{retry}"),
    "clear-dataset-cache": _fix("remove the dataset's cache directory and fetch it again", _ASK, 3,
                                "a whole cache of the right version", "{retry}"),
    "inspect-data": _fix("look at the row and the line of code that the evidence names, and mend either", _ASK, 3,
                         "the reader passes that row", "{retry}"),
    "fix-reward": _fix("mend the reward function for the record that it raised on; it must return a number for every "
                       "completion, also a malformed one", _ASK, 3, "every completion gets a reward", "{retry}"),
    "inspect-reward": _fix("look at the rewards and advantages of one step", _SAFE, 2,
                           "shows why nothing tells a better completion from a worse one",
                           "python -m harness metrics {out}"),
    "inspect-agent": _fix("look at one trajectory, and compare its length with the context", _SAFE, 2,
                          "shows why trajectories are dropped", "{retry}"),
    "look-at-series": _fix("look at the series before the step that the evidence names", _SAFE, 1,
                           "shows whether it went that way slowly or at once", "python -m harness metrics {out}"),
    "find-first-nan": _fix("look at the series before the first value that is not finite", _SAFE, 1,
                           "shows the step, and whether the gradient grew before it",
                           "python -m harness metrics {out} --last 20"),
    "lower-lr": _fix("lower the learning rate, or clip gradients: changes what is trained", _DANGEROUS, 2,
                     "values may stay finite, in another run", "{retry}", halves=("learning_rate", "lr"),
                     approves=True),
    "free-space": _fix("free space on the file system that the evidence names, or save elsewhere", _ASK, 3,
                       "the write succeeds", "df -h"),
    "raise-quota": _fix("have the quota raised, or use less", _ASK, 3, "the request is granted", "{retry}"),
    "other-checkpoint": _fix("resume from an earlier checkpoint that is whole", _DANGEROUS, 3,
                             "training goes on from an older state", "{retry}"),
    "fix-permission": _fix("give the user of the job access to the path that the evidence names", _ASK, 3,
                           "the path can be used", "{retry}"),
    "more-files": _fix("raise the limit of open files (ulimit -n), or use fewer workers", _ASK, 3,
                       "files can be opened", "ulimit -n"),
    "hub-login": _fix("provide a token that may read the repository, and accept its terms", _ASK, 3,
                      "the hub answers", "{retry}"),
    "local-copy": _fix("fetch model and dataset beforehand and name their local paths", _ASK, 3,
                       "nothing is fetched at the start", "{retry}"),
    "fix-reference": _fix("correct the model's or dataset's name, its revision or its hub", _ASK, 3,
                          "the reference resolves", "{retry}"),
    "align-config": _fix("set the keys that the message names to \"auto\" in the DeepSpeed config, or both places to "
                         "one value", _ASK, 3, "one value for one setting", "{retry}"),
    "fix-flag": _fix("correct the argument or setting that the evidence names", _ASK, 3,
                     "the command line is accepted", "{retry}"),
    "install-module": _fix("install what is missing into the environment of the job", _ASK, 3, "the import succeeds",
                           "{retry}"),
    "fix-path": _fix("correct the path that the evidence names, or make it there", _ASK, 3, "the file is found",
                     "{retry}"),
    "fix-metric": _fix("name a metric that the evaluation yields", _ASK, 3, "the decision can be made", "{retry}"),
    "fix-submission": _fix("correct the resources or the image that the job asks for", _ASK, 3, "the job starts",
                           "{retry}"),
    "native-stack": _fix("run once with PYTHONFAULTHANDLER=1", _SAFE, 1, "prints the stack of the native crash",
                         "PYTHONFAULTHANDLER=1 {retry}"),
    "stacks-of-hang": _fix("run again and dump the stacks of the process that stands still (py-spy dump --pid PID)",
                           _SAFE, 1, "shows what it waits for", "{retry}"),
    "longer-timeout": _fix("give the run more time, if its steps were still going on", _ASK, 2,
                           "the run reaches its target", "{retry}"),
    "read-traceback": _fix("read the traceback that the evidence quotes and mend the line that it ends at", _ASK, 2,
                           "the exception does not occur", "{retry}"),
}
