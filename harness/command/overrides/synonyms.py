"""Names of the same setting in different trainers, and what kind of setting a name is."""

from __future__ import annotations

import re

GROUPS: tuple[tuple[str, ...], ...] = (
    ("lr", "learning_rate", "base_lr", "base_learning_rate", "init_lr", "initial_lr"),
    (
        *("batch_size", "train_batch_size", "per_device_train_batch_size", "per_device_batch_size"),
        *("per_gpu_train_batch_size", "batchsize", "bs", "micro_batch_size", "train_micro_batch_size_per_gpu"),
    ),
    ("eval_batch_size", "per_device_eval_batch_size", "val_batch_size", "validation_batch_size"),
    (
        *("epochs", "num_epochs", "num_train_epochs", "max_epochs", "max_epoch", "n_epochs", "nepochs"),
        *("train_epochs", "total_epochs", "num_epoch"),
    ),
    (
        *("max_steps", "max_train_steps", "num_train_steps", "train_steps", "num_training_steps"),
        *("total_training_steps", "training_steps", "total_steps", "num_steps", "max_iters", "max_iterations"),
        *("num_iterations", "num_iters", "train_iters", "iterations", "max_updates", "num_updates", "steps"),
    ),
    ("weight_decay", "wd", "l2"),
    ("seed", "random_seed", "rng_seed"),
    (
        *("gradient_accumulation_steps", "grad_accum", "grad_accum_steps", "gradient_accumulation"),
        *("accumulate_grad_batches", "accum_steps", "accumulation_steps", "grad_acc_steps"),
    ),
    ("max_grad_norm", "grad_clip", "clip_grad_norm", "gradient_clip_val", "clip_grad", "gradient_clipping"),
    ("warmup_steps", "num_warmup_steps", "lr_warmup_steps", "warmup_iters"),
    ("max_length", "max_seq_length", "max_seq_len", "seq_len", "seq_length", "sequence_length", "sequence_len"),
    ("optimizer", "optim", "optimizer_type"),
    ("lr_scheduler", "lr_scheduler_type", "scheduler", "lr_schedule"),
    ("num_workers", "dataloader_num_workers", "workers"),
    ("beta1", "adam_beta1"),
    ("beta2", "adam_beta2"),
    ("eps", "adam_epsilon", "adam_eps"),
    ("lora_r", "lora_rank", "lora_dim"),
)
"""Each group names one setting; a name stands in one group only."""
_GROUP_OF = {name: group for group in GROUPS for name in group}
_CAPACITY = re.compile(
    r"(^|_)(gradient_checkpointing|activation_checkpointing|offload|pin_memory|num_workers|workers|prefetch_factor"
    r"|eval_batch_size|max_running_prompts|mem_frac|gpu_memory_utilization|mem_fraction_static|compile"
    r"|empty_cache_steps|bucket_mb|num_proc|persistent_workers|world_size|tp_size|dp_size|devices|num_nodes"
    r"|mini_bs|score_micro_bs|drop_rollout_state|eager_decode|attn_backend)(_|$)"
)
_OBSERVABILITY = re.compile(
    r"(^|_)(log|logs|logging|logger|report_to|run_name|metrics|tensorboard|wandb|verbose|progress|tb)(_|$)"
    r"|^(save_steps|save_strategy|save_total_limit|disable_tqdm|print_every)$"
)


def normal(name: str) -> str:
    """A name without its dashes, `-` as `_`, in lower case."""
    return name.lstrip("-").replace("-", "_").lower()


def synonyms(key: str) -> tuple[str, ...]:
    """Other names of the setting `key`, normal; of a dotted key, its last part is not looked at."""
    name = normal(key)
    return tuple(other for other in _GROUP_OF.get(name, ()) if other != name)


def setting_kind(name: str) -> str:
    """semantic, capacity or observability, by the last part of a name; what is not known is semantic."""
    leaf = normal(name).rpartition(".")[2]
    if _OBSERVABILITY.search(leaf):
        return "observability"
    return "capacity" if _CAPACITY.search(leaf) else "semantic"


def looks_numeric(key: str) -> bool:
    """Whether the setting is one that is a number in every trainer."""
    return normal(key).rpartition(".")[2] in _NUMERIC


_NUMERIC = frozenset(
    name for group in GROUPS if group[0] not in ("optimizer", "lr_scheduler") for name in group
)
