"""Which settings change memory or speed, which change what is learned, and which only change what is written.

Names are compared in lower case, `-` as `_`, by the whole dotted name or its last part; an entry may end in `*`.
"""

from __future__ import annotations

from harness.command import limits

CAPACITY = (
    "gradient_checkpointing", "activation_checkpointing", "num_workers", "dataloader_num_workers", "workers",
    "pin_memory", "dataloader_pin_memory", "prefetch_factor", "dataloader_prefetch_factor", "persistent_workers",
    "dataloader_persistent_workers", "launched.by", "env.cuda_visible_devices", "env.pytorch_cuda_alloc_conf",
    "env.pytorch_alloc_conf", "env.omp_num_threads", "env.mkl_num_threads", "env.nccl_*", "env.tokenizers_parallelism",
)
"""Of any trainer: memory, speed and placement."""
OBSERVABILITY = (
    *(name.replace("-", "_") for name in
      (*limits.METRIC_DIR_FLAGS, *limits.SAVE_DIR_FLAGS, *limits.OUTPUT_DIR_FLAGS)),
    "log_every", "log_every_n_steps", "log_interval", "log_level", "logging_*", "report_to", "run_name", "run_id",
    "save_every", "save_interval", "save_steps", "save_strategy", "save_total_limit", "disable_tqdm", "verbose",
    "log_completions", "eval_every", "wandb_*", "project", "env.wandb_*", "env.mlflow_*", "env.pythonunbuffered",
    "env.loglevel", "env.log_level",
)
"""Of any trainer: what is written, how often and where."""
SEMANTIC = (
    "max_new_tokens", "max_context_len", "max_prompt_tokens", "max_length", "max_seq_length", "max_prompt_length",
    "max_completion_length", "seq_len", "block_size", "cutoff_len", "lr", "learning_rate", "*_lr", "lr_*", "min_lr",
    "seed", "*_seed", "batch_size", "*_batch_size", "epochs", "num_epochs", "num_train_epochs", "max_epochs",
    *(name.replace("-", "_") for name in limits.STEP_FLAGS),
    *(name.replace("-", "_") for name in limits.RESUME_FLAGS),
    "algo", "algorithm", "model", "model_name_or_path", "dataset*", "data", "data_*", "train_file", "optim",
    "optimizer", "weight_decay", "warmup*", "beta", "betas", "dropout", "temperature", "top_k", "top_p", "bf16",
    "fp16", "dtype", "precision", "launched.program", "cap.*",
)
"""Of any trainer: what is learned, token limits above all."""
ARENO_CAPACITY = (
    "max_running_prompts", "mini_bs", "score_micro_bs", "gradient_accumulation_steps", "activation_checkpointing",
    "drop_rollout_state", "optimizer_state_offload*", "eager_decode", "attn_backend", "tp_size", "rollout_tp_size",
    "world_size", "train_devices", "rollout_devices", "devices", "mem_frac", "sequence_parallel",
    "policy_sync_bucket_mb", "launched.by", "launched.world_size", "env.cuda_visible_devices",
    "env.nccl_*", "env.pytorch_cuda_alloc_conf",
    "env.mlx_disable_compile", "resolved_max_running_prompts", "keep_rollout_state",
)
"""With the names of its areno_run_config. Its --batch-size is the whole batch, which neither world_size nor smaller
micro-batches change."""
ARENO_OBSERVABILITY = (
    "metrics_log_dir", "save_path", "save_interval", "export_gguf*", "gguf_file_type", "env.areno_log_completions",
    "env.pythonunbuffered",
)
TRANSFORMERS_CAPACITY = (
    *CAPACITY, "gradient_checkpointing_kwargs", "per_device_eval_batch_size", "auto_find_batch_size", "fsdp*",
    "ddp_*", "torch_empty_cache_steps", "eval_accumulation_steps", "skip_memory_metrics", "local_rank",
    "vllm_gpu_memory_utilization", "torch_compile*", "accelerator_config*", "train_batch_size",
)
"""`train_batch_size` is what trainer_state.json calls the samples of a device, a factor of the batch."""
TRANSFORMERS_BATCH = ("per_device_train_batch_size=8", "gradient_accumulation_steps=1", "world_size=1")
"""NAME=DEFAULT; their product is the batch of an update."""
LIGHTNING_BATCH = ("batch_size=1", "accumulate_grad_batches=1", "devices=1", "num_nodes=1")
