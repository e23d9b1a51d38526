"""Every reason code with its kind, its meaning and its remedy.

references/vocabulary.md is rendered from here too; each code is made to appear by a test.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.record.reasons import Reason
from harness.record.vocabulary import ReasonKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonSpec:
    """A reason code as documented: what it means and what a user does about it."""

    kind: ReasonKind
    meaning: str
    remedy: str


_B, _U, _I = ReasonKind.BROKEN, ReasonKind.UNPROVEN, ReasonKind.INFRASTRUCTURE


def _reason(kind: ReasonKind, meaning: str, remedy: str) -> ReasonSpec:
    return ReasonSpec(kind=kind, meaning=meaning, remedy=remedy)


REASONS: dict[Reason, ReasonSpec] = {
    Reason.COMMAND_NOT_FOUND: _reason(
        _B, "the command's program does not exist or is not executable",
        "give a program on PATH, or the path of one that is executable"),
    Reason.COMMAND_REFUSED: _reason(
        _B, "the command is not a training command, or cannot be run as it stands",
        "give the command that trains; the finding says what to write instead"),
    Reason.OVERRIDE_NOT_PLACED: _reason(
        _B, "an override has no place where the program would read it, or more than one, or a value that it refuses",
        "say which flag it is with --hp-flag KEY=--flag, or name the config value by its dotted key"),
    Reason.ENTRYPOINT_MISSING: _reason(
        _B, "the script that the command names is not there",
        "check the path against --workdir"),
    Reason.WORKDIR_MISSING: _reason(
        _B, "the working directory does not exist", "give an existing directory as --workdir"),
    Reason.LAUNCH_FAILED: _reason(
        _B, "the operating system refused to start the command", "read the error beside it; run the command by hand"),
    Reason.TRAINER_NOT_READY: _reason(
        _B, "the trainer's own check of the machine fails on something that the job needs",
        "follow the steps that it names; evidence.environment.trainer_check holds them"),
    Reason.GPU_MISSING: _reason(
        _B, "a GPU was required and none is visible",
        "run on a machine with a GPU, or drop --require-gpu"),
    Reason.ENV_UNRECORDED: _reason(
        _U, "environment facts could not be recorded", "read the journal's environment record for the error"),
    Reason.DATASET_UNREADABLE: _reason(
        _B, "the dataset is not there or cannot be read", "give a path or a ModelScope id that can be read; "
        "`python -m harness inspect-dataset` shows what it reads"),
    Reason.DATASET_LOADER_FAILED: _reason(
        _B, "the dataset loader raised, hung, used too much, or returned what is no dataset",
        "run it by hand; it must return a list of rows, or a Dataset, within the limits that the finding names"),
    Reason.DATASET_LOADER_REQUIRED: _reason(
        _B, "the rows lack what the algorithm reads, or the algorithm takes no dataset without a loader",
        "give --dataset-loader-fn FILE; the finding names a loader where the rows have a known shape"),
    Reason.DATASET_CONTRACT_BROKEN: _reason(
        _B, "a row breaks the contract of the algorithm", "mend the rows that the finding names, or drop them in the "
        "loader; references/data-contracts.md holds the contracts"),
    Reason.DATASET_ALL_DROPPED: _reason(
        _B, "the trainer would drop every row, so nothing would be trained on",
        "look at the reasons of the dropped rows; raise the token limits or mend the data"),
    Reason.DATASET_UNINSPECTED: _reason(
        _U, "the run trains on a dataset that was not looked at", "launch it under the harness, or run "
        "`python -m harness inspect-dataset`"),
    Reason.HUB_UNREACHABLE: _reason(
        _I, "ModelScope cannot be reached and what is needed is not in its cache",
        "check the network and MODELSCOPE_ENDPOINT, or give a local path"),
    Reason.HUB_ASSET_MISSING: _reason(
        _B, "ModelScope has no such model or dataset, or no such revision, subset or split",
        "give a valid ModelScope id or a local path; nothing is fetched from another hub in its place"),
    Reason.CAPACITY_INVARIANT: _reason(
        _B, "sizes of the command contradict each other: demand, devices, memory share",
        "change the number that the finding names; max_new_tokens and max_context_len stay as they are"),
    Reason.CAPACITY_EXCEEDED: _reason(
        _B, "the smallest real allocation or step of the job failed",
        "read the end of the smoke's log; fewer concurrent prompts or a smaller microbatch first, never shorter "
        "token limits"),
    Reason.CAPACITY_EVIDENCE_ONLY: _reason(
        _B, "only a smoke ran: capacity evidence only, nothing was trained",
        "run `pytest -m real_step`, or `-m \"smoke_capacity or real_step\"` for both"),
    Reason.SMOKE_UNAVAILABLE: _reason(
        _U, "nobody knows a smallest step of this framework's commands",
        "run the real job with --max-steps 1, or leave -m smoke_capacity out"),
    Reason.CRASHED_IN_WINDOW: _reason(
        _B, "the process died within the crash window after its start", "read the end of train.log"),
    Reason.EXIT_CODE: _reason(
        _B, "the trainer ended with a non-zero exit code", "read the end of train.log"),
    Reason.KILLED_BY_SIGNAL: _reason(
        _B, "the trainer was killed by a signal that the harness did not send",
        "look for the sender: kernel OOM killer, scheduler, another user"),
    Reason.INFRASTRUCTURE_FAILURE: _reason(
        _I, "a node, a connection or a hub failed, and the run ended with it",
        "run the same command again once that is mended; without --no-fix the harness does so up to three times"),
    Reason.RESTARTS_BEYOND_BUDGET: _reason(
        _U, "the run needed more restarts than were declared", "find out what keeps ending it, then run it again"),
    Reason.RESTART_GAP: _reason(
        _U, "a restarted run began beyond the last step that the attempt before is known to have made",
        "save more often, flush the log at every step, and check what the resume really starts from"),
    Reason.EXCEPTION_BEHIND_EXIT_0: _reason(
        _B, "an exception ended the training loop although the exit code is 0",
        "let the exception reach the exit code; read the traceback in train.log"),
    Reason.RUN_TIMEOUT: _reason(
        _B, "the run reached --run-timeout and was stopped", "raise --run-timeout, or find out why it hangs"),
    Reason.CANCELLED: _reason(
        _I, "the run was cancelled before it ended", "run it again and let it end"),
    Reason.SUPERVISOR_LOST: _reason(
        _I, "the harness itself was killed; the trainer was stopped with it", "run it again"),
    Reason.RUN_UNFINISHED: _reason(
        _I, "the run has no end in its journal", "wait for it, then judge again with `python -m harness verify`"),
    Reason.RUN_GOES_ON: _reason(
        _U, "the watch ended before the run did, which goes on",
        "watch it to its end, or give its logs to `python -m harness judge` once it has ended"),
    Reason.NO_REAL_RUN: _reason(
        _B, "nothing was launched, so nothing was proven", "mend the gate that failed before the launch"),
    Reason.TARGET_UNKNOWN: _reason(
        _U, "nobody said how many steps the run should make", "give --max-steps N"),
    Reason.TARGET_NOT_REACHED: _reason(
        _B, "the run ended before its target step", "find out what ended it: data exhausted, another limit, a crash"),
    Reason.TARGET_UNPROVEN: _reason(
        _U, "nothing tells surely that the target was reached, or what tells it disagrees with the updates counted",
        "log the last step, save a final checkpoint (--checkpoint-dir), or leave the probe on; where the probe counted "
        "fewer updates than steps, state the accumulation in the command (--grad-accum N), or count updates"),
    Reason.EARLY_STOP_PRINTED: _reason(
        _U, "the run ended before its target, and it printed that it stopped early, which nothing else shows",
        "let the harness stop it (--early-stop-metric M with the program's own stop off), or accept it with "
        "--accept-conditional"),
    Reason.NO_UPDATE_EXECUTED: _reason(
        _B, "no optimizer step was applied",
        "check that the loop reaches optimizer.step(): data, warm-up, skip conditions"),
    Reason.UPDATES_UNPROVEN: _reason(
        _U, "nothing independent of the log shows that an optimizer step was applied",
        "leave the probe on (torch), or name a --checkpoint-dir so that weights can be compared"),
    Reason.NO_EFFECTIVE_UPDATE: _reason(
        _B, "updates were executed, and every one had a zero gradient",
        "check frozen parameters, detached losses and masked labels"),
    Reason.LR_ZERO: _reason(
        _B, "the learning rate was 0 at every executed update", "check the schedule and the optimizer's lr"),
    Reason.LR_ZERO_WARMUP: _reason(
        _U, "only warm-up steps with learning rate 0 ran", "run at least 2 steps"),
    Reason.NO_LEARNING_SIGNAL: _reason(
        _B, "rewards or advantages never differed within a group, so no update could teach anything",
        "check the reward function on different completions; raise n_samples or the temperature"),
    Reason.NO_RESPONSE_TOKENS: _reason(
        _B, "every update was computed on prompts alone",
        "check the responses of the rows, the loss mask and the token limits"),
    Reason.TRAJECTORIES_ALL_FILTERED: _reason(
        _B, "every rollout was left out: over the context limit, or invalid",
        "give the agent a longer context or shorter turns, or mend what makes its trajectories invalid"),
    Reason.TRAJECTORIES_ALL_CUT: _reason(
        _U, "the context limit cut every trajectory of every update, so that the agent's later turns were never "
            "trained on",
        "give the agent a longer context or shorter turns; where it is meant to play until the context is full, "
        "--accept-conditional or a waiver"),
    Reason.EFFECT_UNPROVEN: _reason(
        _U, "updates were executed, and neither gradient, learning rate nor weights show an effect",
        "log grad_norm and lr, leave the probe on, or name a --checkpoint-dir"),
    Reason.WEIGHTS_UNCHANGED: _reason(
        _B, "the saved weights equal the weights at the start", "check that the saved model is the trained one"),
    Reason.WEIGHTS_NOT_COMPARED: _reason(
        _U, "the saved weights are whole, and there is no start of training that they could be compared with",
        "save before the first step (step_0) or more than once, or start from local weights that the command names; "
        "with the probe off, leave it on"),
    Reason.WEIGHTS_UNRELATED: _reason(
        _U, "the saved weights keep nothing of those that were trained, neither of the start nor of the end: they may "
        "be newly drawn, or another model's", "make sure that the trained model is the one that is saved; a checkpoint "
        "beside it that may be another model is to be named for it (reference, teacher)"),
    Reason.WEIGHTS_OUTDATED: _reason(
        _U, "a checkpoint holds the weights of an earlier update than that at which it was saved",
        "save the model as it is, not an earlier copy; a best one is better named so than by the step"),
    Reason.START_BESIDE_TRAINED: _reason(
        _U, "a checkpoint beside the trained one holds the weights that training began with",
        "make sure that the trained one is used, and name the other for what it is (start, reference, untrained)"),
    Reason.LOSS_NOT_FINITE: _reason(
        _B, "a loss was NaN or infinite", "start from the first non-finite step: data at that step, lr, precision"),
    Reason.GRAD_NORM_NOT_FINITE: _reason(
        _B, "a gradient norm was NaN or infinite without a loss scaler skipping that step",
        "check the loss at that step, gradient clipping and precision"),
    Reason.WEIGHTS_NOT_FINITE: _reason(
        _B, "a saved tensor holds NaN or infinite values", "discard the checkpoint; look for the step where it began"),
    Reason.FINITENESS_UNPROVEN: _reason(
        _U, "this framework hides NaN losses, and nothing that cannot hide them was recorded",
        "log grad_norm, or save a final checkpoint"),
    Reason.STALE_METRICS: _reason(
        _B, "the only metric points are older than this launch",
        "point --metrics-dir at the directory this run writes to"),
    Reason.FOREIGN_METRICS: _reason(
        _B, "the only metric points were written by another process", "give the run a metrics directory of its own"),
    Reason.METRICS_OWNER_UNPROVEN: _reason(
        _U, "the metric files lie in a directory that others write to, and nobody was seen writing them",
        "give the run a metrics directory of its own"),
    Reason.NO_METRIC_POINTS: _reason(
        _U, "the run wrote no metric point that the harness found",
        "log to TensorBoard or JSON lines, and name the directory with --metrics-dir (the working directory too: "
        "`--metrics-dir .`)"),
    Reason.NO_RECOGNISED_METRICS: _reason(
        _U, "none of the tags is a loss that the checks know", "name it with --loss-tag TAG"),
    Reason.PRINTED_METRICS_ONLY: _reason(
        _U, "the only training loss was read from what the run printed, whose steps and digits prove nothing",
        "log to TensorBoard, CSV or JSON lines as well, and name the directory with --metrics-dir"),
    Reason.SOURCES_DISAGREE: _reason(
        _B, "two sources put the last step further apart than their cadence allows, or hold other values",
        "check that both belong to this run"),
    Reason.EARLY_STOP_METRIC_MISSING: _reason(
        _B, "early stopping was asked for on a metric that was never logged",
        "name a metric that the evaluation logs; `python -m harness metrics OUT_DIR` lists them"),
    Reason.NEVER_IMPROVED: _reason(
        _U, "the run was stopped early and its first evaluation was the best one",
        "look at the learning rate and the data; evaluate before training to tell whether anything was learnt"),
    Reason.STOPPED_ON_ANOMALY: _reason(
        _B, "an anomaly that --stop-on names stopped the run",
        "see the anomaly in babysit-training.json; leave --stop-on out to let such a run go on"),
    Reason.UNRESOLVED_ANOMALY: _reason(
        _U, "something that the watch saw go gravely wrong was not seen to be over at the end",
        "see the anomaly in babysit-training.json; run again when its cause is mended"),
    Reason.WORLD_SIZE_NOT_REALISED: _reason(
        _B, "the processes did not form the process group that their launcher was asked for",
        "initialise torch.distributed from the launcher's environment; each process trained a model of its own"),
    Reason.RANK_WITHOUT_UPDATES: _reason(
        _B, "a rank made an optimizer and never stepped it, while others did",
        "look at that rank's data and log: an empty shard, a skipped loop"),
    Reason.RANKS_TRAINED_ALONE: _reason(
        _B, "the ranks joined one process group and exchanged nothing between their updates but numbers to log",
        "wrap the model (DistributedDataParallel, FSDP) and call the wrapper, not its .module; where the ranks "
        "exchange less often than this run is long, run past an exchange"),
    Reason.EXCHANGE_UNPROVEN: _reason(
        _U, "it was not seen that the ranks of the process group trained one model together",
        "leave the probe on; exchange gradients or weights through torch.distributed, which it sees"),
    Reason.RAN_ON_CPU: _reason(
        _B, "a GPU was required, and the parameters that were trained lie on the CPU",
        "move the model to the GPU; check that this torch has CUDA and that CUDA_VISIBLE_DEVICES names a device"),
    Reason.TOPOLOGY_UNPROVEN: _reason(
        _U, "it was not seen whether the run used the processes and devices that were asked for",
        "leave the probe on, and let it reach every process of the job (PYTHONPATH, a shared out-dir)"),
    Reason.OVERRIDE_WITHOUT_EFFECT: _reason(
        _B, "the trainer used another value than an override asked for",
        "look where the trainer reads that setting: a config file, a later flag, a schedule, or --hp-flag KEY=--flag"),
    Reason.OVERRIDE_REPLACED: _reason(
        _U, "the program received an override and had put another value in its place when it trained",
        "look what it does with its arguments after parsing: a config file that wins over the flag, or a value that is "
        "computed from it on purpose; then ask for the value that you want there, or give --accept-conditional"),
    Reason.OVERRIDE_UNPROVEN: _reason(
        _U, "nothing that the run left tells whether the program received a setting that --hp asked for",
        "leave the probe on, which sees what the usual parsers and readers of config files return; of another one, let "
        "the program print its settings at the start or save them where its trainer does"),
    Reason.SAMPLE_MISSING: _reason(
        _U, "no sample of the last update was recorded",
        "let the trainer write samples, or name a file with --samples"),
    Reason.SAMPLE_EMPTY: _reason(
        _B, "the model's completion is empty",
        "check the chat template, the end token and the prompt's last characters"),
    Reason.SAMPLE_UNDECODABLE: _reason(
        _B, "the model's completion is byte soup and no text",
        "start from weights that have learned the language: run SFT first, or check --ckpt and the tokenizer"),
    Reason.SAMPLE_REPETITIVE: _reason(
        _B, "the model's completion runs in a loop",
        "compare with a sample of the start; lower the learning rate, raise the KL weight, check the sampling"),
    Reason.SAMPLES_ALL_TRUNCATED: _reason(
        _U, "every completion of the run was cut at its cap",
        "look whether the model ends its answers at all; a reward for cut answers explains nothing"),
    Reason.REWARD_NOT_RECOMPUTABLE: _reason(
        _U, "the sample's reward could not be computed again",
        "give a reward function of one record without chance, or --no-reward-check where calling it costs money"),
    Reason.REWARD_MISMATCH: _reason(
        _B, "the reward function gives a value outside what that step's rewards were",
        "check that --reward-fn-path is the function of this run and reads no state of its own"),
    Reason.TRANSCRIPT_BROKEN: _reason(
        _B, "the agent's transcript is out of order", "check that each tool result follows its call and has its id"),
    Reason.RESUME_FAILS: _reason(
        _B, "the command does not go on from its own checkpoint to its end",
        "resume it by hand; read resume-check/second/output.log"),
    Reason.RESUME_IGNORED: _reason(
        _B, "a run that was told to resume trained from the start again",
        "load the checkpoint that the flag names, and begin after its step"),
    Reason.RESUME_DIVERGES: _reason(
        _B, "a resumed run parts from the uninterrupted one",
        "save and restore the suspected state with the checkpoint; name a tolerance where the trainer is not exact"),
    Reason.RESUME_REPLAYS_DATA: _reason(
        _B, "a resumed run trains on the first batches again",
        "save the position in the data, or skip the batches that were seen"),
    Reason.RESUME_RESTARTS_SCHEDULER: _reason(
        _B, "a resumed run begins its learning-rate schedule again", "save and restore the scheduler's state"),
    Reason.RESUME_UNPROVEN: _reason(
        _U, "resuming could not be compared with going on",
        "name the directories in the command, save before the last step, and name the flag: --hp-flag resume=--flag"),
    Reason.CHECKPOINT_UNREADABLE: _reason(
        _B, "a checkpoint of this run cannot be read", "check disk space and that saving was not cut short"),
    Reason.CHECKPOINT_MISSING: _reason(
        _U, "saving was asked for and no checkpoint of this run was found", "name the directory with --checkpoint-dir"),
    Reason.CHECKPOINT_UNFINISHED: _reason(
        _B, "the newest save was begun and never ended", "find out what ended it; delete what is left of it"),
    Reason.CHECKPOINT_LACKS_TENSORS: _reason(
        _B, "the last checkpoint lacks tensors that the one before it holds",
        "look at what is passed to save; deliver the checkpoint before it"),
    Reason.CHECKPOINT_REPEATED: _reason(
        _B, "the last checkpoint holds the very weights of an earlier step",
        "check that the model that is saved is the one that is trained"),
    Reason.SAVE_PATH_UNWRITABLE: _reason(
        _B, "the run could not write where it was to save", "give a directory that can be written"),
    Reason.DISK_FULL: _reason(
        _B, "a save failed since the disk or the quota is full", "free space, or keep fewer checkpoints; run it again"),
    Reason.RELOAD_FAILED: _reason(
        _B, "what the run saved does not load in a fresh process",
        "read evidence.reload: which keys are missing, or which shapes differ from the config's"),
    Reason.RELOAD_REFUSED: _reason(
        _U, "loading the checkpoint would run code from it",
        "save safetensors or plain tensors, or give --allow-pickle if you trust the file"),
    Reason.RELOAD_NOT_ATTEMPTED: _reason(
        _U, "the checkpoint could not be loaded here: too large, a base model or a package is missing",
        "run the command in evidence.reload on a machine that has them"),
    Reason.FORWARD_NOT_FINITE: _reason(
        _B, "the reloaded model's forward pass gives NaN or infinite values",
        "look at the dtype it is loaded in, and at the weights' largest values"),
    Reason.EVAL_LOSS_DISAGREES: _reason(
        _B, "the reloaded model's evaluation is not the one that was logged",
        "check that the weights were saved after the step that they are named for, and that a function of "
        "--reload-with evaluates on the data and in the way of the run"),
    Reason.EVAL_NOT_LOGGED: _reason(
        _U, "the function of --reload-with names a metric of which the run logged no value for this very model",
        "log it at the steps that are saved, under the name that the function gives it (`python -m harness metrics "
        "OUT_DIR` lists the names), or return the model's outputs for a forward pass alone"),
    Reason.EVAL_CHECK_NOT_MADE: _reason(
        _U, "--eval-check asked for the program's own evaluation of what it saved, and none can be held against what "
        "the run logged",
        "mend what is named, evaluate by --reload-with FILE.py:FUNCTION, or leave --eval-check out"),
    Reason.RELOAD_REFUTED: _reason(
        _B, "an assertion in the function of --reload-with says that the reloaded model is wrong",
        "read its message in evidence.reload.function; `python -m harness checkpoints` repeats it"),
    Reason.RELOAD_FUNCTION_FAILED: _reason(
        _U, "the function of --reload-with raised, or returned neither metrics nor outputs; whether the model or the "
        "function is at fault cannot be told apart",
        "run the command in evidence.reload, and mend what it names; an assert in the function itself says that the "
        "model is at fault"),
    Reason.WAIVER_EXPIRED: _reason(
        _B, "a waiver of the policy has passed its end", "take it out of the policy, or give it a new end and reason"),
    Reason.REQUIRED_GATE_MISSED: _reason(
        _U, "the policy requires a gate that this run gives nothing to",
        "give the run what the gate needs (see its rationale), or take the gate out of the policy"),
    Reason.EXPECT_METRIC_MISSING: _reason(
        _B, "what --expect names was not logged, or not at that step",
        "see `python -m harness metrics OUT_DIR` for the names and steps that there are"),
    Reason.EXPECT_NOT_FINITE: _reason(
        _B, "a point of what --expect names is NaN or infinite", "look at the step that it names"),
    Reason.EXPECT_TOO_FEW_POINTS: _reason(
        _B, "the window of an --expect holds too few points, or the series ends inside it",
        "let the run go on for longer, or name a window that it reaches"),
    Reason.EXPECT_OUT_OF_BAND: _reason(
        _B, "a number of the run lies outside its reference band",
        "compare the run with those of the band: `python -m harness compare A B`"),
    Reason.RETRY_SETTING_CHANGED: _reason(
        _B, "a retry changes a setting that is not capacity, so that it is another job",
        "set it back and change capacity first, or give --approve KEY"),
    Reason.RETRY_SETTING_UNKNOWN: _reason(
        _U, "the trainer used another value of a setting of which no kind is known",
        "see evidence.lineage for which; give --approve KEY where it changes nothing that is learned"),
    Reason.RETRY_IDENTITY_DIFFERS: _reason(
        _B, "a retry has other code, weights, data or packages than the run before it",
        "restore them, or give --approve WHAT"),
    Reason.RETRY_IDENTITY_UNPROVEN: _reason(
        _U, "both runs take weights or data of the same name from elsewhere, and nothing shows that they are the same",
        "pin the revision to a commit, name a local copy, or give --approve model or --approve dataset"),
    Reason.RETRY_POINTLESS: _reason(
        _B, "the run before ended by what is its own, and the retry changes nothing",
        "mend the cause that check-failed-run.json names; give --approve cause where it lies outside the job's files"),
    Reason.RETRY_METRICS_DIVERGE: _reason(
        _B, "a retry's loss leaves that of the run before it beyond the stated tolerance",
        "look at the first step that differs: seed, data order, code"),
    Reason.RETRY_METRICS_DIFFER: _reason(
        _U, "a retry's loss is not that of the run before it, and no tolerance was stated",
        "fix the seed and the data order; or measure the noise: `python -m harness baseline RUN RUN --out FILE` of two "
        "good runs tells the retry_rtol for --policy FILE, and a lineage with two whole runs (--retry-of this one, "
        "twice) needs none"),
    Reason.EVIDENCE_INCOMPLETE: _reason(
        _U, "an artifact of the out-dir is missing or damaged", "see the finding for which"),
    Reason.COMMAND_UNKNOWN: _reason(
        _U, "the run was made by others, and nobody said by which command",
        "give --train-cmd CMD to `python -m harness judge`, or watch it as pid:N"),
    Reason.EXIT_UNKNOWN: _reason(
        _U, "the run was made by others, and nobody said how it ended",
        "give --exit-code N to `python -m harness judge`"),
    Reason.EXIT_ASSERTED: _reason(
        _U, "the exit code is the user's word",
        "name the final checkpoint with --checkpoint-dir and --launched-at, or launch the run with --train-cmd"),
    Reason.EXCEPTION_IN_LOG: _reason(
        _B, "the log of a run whose exit nobody saw ends with an error, and no target was reached before it",
        "read the end of train.log; where the run went on after it, give --max-steps N and the metrics that show it"),
    Reason.LAUNCH_TIME_UNKNOWN: _reason(
        _U, "the run was made by others, and nobody said when it was launched",
        "give --launched-at TIME to `python -m harness judge`, or watch it as pid:N"),
    Reason.FRESHNESS_ASSERTED: _reason(
        _U, "that the log and the metrics are of this run is the user's word",
        "name the final checkpoint with --checkpoint-dir, or launch the run with --train-cmd"),
}
