"""What programs that cannot run here print when they fail, in the words of public reports and of their sources.

The words are the programs'; ranks, hosts, numbers and paths are ours. `source` is where they were read: a public report,
or the package and version whose source prints them. Several of one rule are wordings of several versions.
"""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """One log of one rule, and where its words are from."""

    rule: str
    source: str
    text: str


def raised(error: str, *frames: str) -> str:
    """A traceback that ends in `error`; frames are `file:function: code`."""
    lines = ["Traceback (most recent call last):"]
    for frame in frames or ("/srv/job/train.py:main: run()",):
        file, function, code = frame.split(":", 2)
        lines += [f'  File "{file}", line 12, in {function}', f"    {code.strip()}"]
    return "\n".join([*lines, error, ""])


GITHUB = "https://github.com/"
TRAIN = "/srv/engine/worker.py:train_step: loss.backward()"
ROLLOUT = "/srv/engine/rollout.py:generate: self.step()"
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
LATER = ("\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
         "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable "
         "device-side assertions.\n")
OOM = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB of "
       "which 1.02 GiB is free. Including non-PyTorch memory, this process has 78.12 GiB memory in use. Of the allocated "
       "memory 70.10 GiB is allocated by PyTorch, and 6.35 GiB is reserved by PyTorch but unallocated. If reserved but "
       "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
       "See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")
WATCHDOG = ("[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=412, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, Timeout(ms)=600000) ran for 600020 "
            "milliseconds before timing out.\n")
ASSERTION = "indexSelectLargeIndex: block: [3,0,0], thread: [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
ACTOR = ("\n\tclass_name: Runner\n\tactor_id: 28507c63735529c3265367b501000000\n\tpid: 1592\n\tnamespace: b9b0f765\n"
         "\tip: 10.0.0.9\n")
TASK = raised("ray.exceptions.RayTaskError({}): ray::Runner.run() (pid=104449, ip=10.0.0.7, actor_id=36b6798a, "
              "repr=<main.Runner object at 0x783e766c0ca0>)",
              "/venv/site-packages/ray/_private/worker.py:get_objects: raise value.as_instanceof_cause()") + (
    '  File "/srv/verl/trainer/main.py", line 94, in run\n    trainer.fit()\n'
    '  File "/srv/verl/single_controller/ray/base.py", line 47, in func\n    output = ray.get(output)\n')
"""How Ray hands on the error of a task; the error itself stands behind."""

WORDINGS = (
    # accelerator memory
    Wording("oom-device", GITHUB + "murong-xu/CADS/issues/4", raised(OOM)),
    Wording("oom-device", GITHUB + "kerrj/lerf/issues/73",
            raised("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacty of "
                   "23.65 GiB of which 1.66 GiB is free. Including non-PyTorch memory, this process has 20.81 GiB memory in "
                   "use. Of the allocated memory 12.09 GiB is allocated by PyTorch, and 4.84 GiB is reserved by PyTorch but "
                   "unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid "
                   "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF")),
    Wording("oom-device", GITHUB + "2KangHo/vdsr_pytorch/issues/2",
            raised("RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.90 GiB total capacity; 13.13 GiB "
                   "already allocated; 415.88 MiB free; 14.80 GiB reserved in total by PyTorch)")),
    Wording("oom-device", "cudaGetErrorString(cudaErrorMemoryAllocation) behind torch's own prefix",
            raised("RuntimeError: CUDA error: out of memory" + LATER.rstrip())),
    Wording("oom-device", "torch 0.4, THC/generic/THCStorage.cu",
            raised("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58")),
    Wording("oom-device", "triton, third_party/nvidia/backend/driver.c",
            raised("RuntimeError: Triton Error [CUDA]: out of memory")),
    Wording("oom-device", GITHUB + "chepraid/EasyR1/issues/9", TASK.format("OutOfMemoryError") + OOM + "\n"),
    Wording("oom-device", GITHUB + "jax-ml/jax/issues/22755",
            raised("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3743729664 "
                   "bytes.")),
    Wording("oom-device", GITHUB + "jax-ml/jax/issues/4994",
            raised("RuntimeError: Resource exhausted: Out of memory while trying to allocate 24 bytes.")),
    Wording("oom-device", GITHUB + "keras-team/keras/issues/9643",
            raised("tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with "
                   "shape[128,128,109,109] and type float on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc")),
    Wording("oom-metal", GITHUB + "ml-explore/mlx/pull/479",
            "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: "
            "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n"),
    Wording("oom-device", GITHUB + "ml-explore/mlx/pull/479",
            raised("RuntimeError: [METAL] Command buffer execution failed: Insufficient Memory "
                   "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory).")),
    Wording("oom-rollout", GITHUB + "murong-xu/CADS/issues/4", raised(OOM, ROLLOUT)),
    Wording("oom-train", GITHUB + "murong-xu/CADS/issues/4", raised(OOM, TRAIN)),
    Wording("capture-oom-within", "areno 0.10.0, engine/inference.py",
            raised(OOM, "/venv/site-packages/areno/engine/inference.py:_capture: graph.capture()") + CAUSED
            + raised("RuntimeError: out of memory while capturing the decode CUDA graph for bucket 8 on rank 0: CUDA out of "
                     "memory. Tried to allocate 2.50 GiB.. The TP group already committed to this bucket, so no rank can skip it "
                     "without hanging the others; the run stops here instead. Lower --max-running-prompts, reduce "
                     "runtime.decode_graph_buckets, lower runtime.speculative_draft_tokens, or pass --eager-decode.")),
    Wording("capture-oom", "areno 0.10.0, engine/inference.py",
            raised("RuntimeError: out of memory while capturing the decode CUDA graph for bucket 8 on rank 0: CUDA out of "
                   "memory. Tried to allocate 2.50 GiB.. The TP group already committed to this bucket, so no rank can skip it "
                   "without hanging the others; the run stops here instead.")),
    # host memory
    Wording("oom-host-ray", GITHUB + "real-stanford/flingbot/issues/11",
            raised("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node "
                   "(IP: 10.0.0.7, ID: fc2befb2) where the task (actor ID: f9cc340f, name=SimEnv.__init__, pid=4331, memory "
                   "used=2.22GB) was running was 59.49GB / 62.58GB (0.950744), which exceeds the memory usage threshold of 0.95. "
                   "Ray killed this worker (ID: d98ac96c) because it was the most recently scheduled task")),
    Wording("oom-host-ray", GITHUB + "ray-project/ray/pull/3323",
            raised("ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node node7 is used (11.8 / 12.3 GB). "
                   "The top 5 memory consumers are:")),
    Wording("oom-host-ray", GITHUB + "verl-project/verl/issues/4995",
            TASK.format("OutOfMemoryError") + "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
            "memory.\nMemory on the node (IP: 10.0.0.7, ID: 87d772fa) where the lease (lease ID: 79000000, name=agent_loop_worker, "
            "pid=2285, memory used=10.13GB) was running was 891.06GB / 937.50GB (0.950459), which exceeds the memory usage "
            "threshold of 0.95.\n"),
    Wording("oom-host-raylet", GITHUB + "WM-PO/WMPO/issues/3",
            "(raylet) [2025-12-07 09:57:19,206 E 3934 3934] (raylet) node_manager.cc:3277: 2 Workers (tasks / actors) killed due "
            "to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 8289f87b, IP: 10.0.0.7) over the last "
            "time period. To see more information about the Workers killed on this node, use `ray logs raylet.out -ip 10.0.0.7`\n"),
    Wording("oom-host-confirmed", GITHUB + "chrisknewman/tusas/issues/149",
            "slurmstepd: error: Detected 1 oom_kill event in StepId=440575.0. Some of the step tasks have been OOM Killed.\n"
            "srun: error: node7: tasks 1-3: Out Of Memory\nsrun: Terminating StepId=440575.0\n"
            "slurmstepd: error: *** STEP 440575.0 ON node7 CANCELLED AT 2023-12-05T07:16:01 ***\n"),
    Wording("oom-host-confirmed", GITHUB + "hafs-community/HAFS/issues/101",
            "slurmstepd: error: Detected 1 oom-kill event(s) in step 3495064.0 cgroup. Some of your processes may have been killed "
            "by the cgroup out-of-memory handler.\nsrun: error: node7: task 4: Out Of Memory\nsrun: Terminating job step "
            "3495064.0\nslurmstepd: error: *** STEP 3495064.0 ON node7 CANCELLED AT 2021-10-27T19:35:36 ***\n"),
    Wording("oom-host-confirmed", GITHUB + "snakemake/snakemake-executor-plugin-slurm/pull/371",
            "srun: error: node7: task 0: Out Of Memory\n"),
    Wording("oom-host-confirmed", GITHUB + "pcyin/tranX/issues/41",
            "[2059991.491542] Out of memory: Killed process 25315 (python3) total-vm:53312244kB, anon-rss:31451456kB, "
            "file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0\n"),
    Wording("oom-host-confirmed", GITHUB + "reportportal/kubernetes/issues/203",
            "[ 7063.247407] Memory cgroup out of memory: Killed process 63214 (python) total-vm:3149468kB, anon-rss:164992kB, "
            "file-rss:52176kB, shmem-rss:92kB, UID:0 pgtables:1372kB oom_score_adj:986\n"),
    # the device
    Wording("device-assert", GITHUB + "huggingface/trl/issues/1995",
            " 5%|5         | 72/1398 [1:12:34<24:31:08, 66.57s/it]../aten/src/ATen/native/cuda/Indexing.cu:1284: " + ASSERTION
            + raised("RuntimeError: CUDA error: device-side assert triggered" + LATER.rstrip(), TRAIN)),
    Wording("device-assert", GITHUB + "facebookresearch/XLM/issues/204",
            "/opt/conda/conda-bld/pytorch_1544199946412/work/aten/src/THC/THCTensorIndex.cu:362: void "
            "indexSelectLargeIndex(TensorInfo<T, IndexType>, TensorInfo<T, IndexType>, TensorInfo<long, IndexType>, int, int, "
            "IndexType, IndexType, long) [with T = float, IndexType = unsigned int, DstDim = 2, SrcDim = 2, IdxDim = -2, "
            "IndexIsMajor = true]: block: [84,0,0], thread: [109,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"),
    Wording("device-assert-reported", GITHUB + "huggingface/trl/issues/1995",
            raised("RuntimeError: CUDA error: device-side assert triggered" + LATER.rstrip())),
    Wording("device-assert-line", GITHUB + "vllm-project/vllm/issues/5537",
            "[rank1]:[E ProcessGroupNCCL.cpp:1414] [PG 2 Rank 1] Process group watchdog thread terminated with exception: CUDA "
            "error: device-side assert triggered" + LATER),
    Wording("cuda-error-line", GITHUB + "InternLM/lmdeploy/issues/3258",
            "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0 PG GUID 0(default_pg) "
            "Rank 2] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was "
            "encountered" + LATER),
    Wording("cuda-error-line", GITHUB + "vllm-project/vllm/issues/4108",
            "[E ProcessGroupNCCL.cpp:916] [Rank 0] NCCL watchdog thread terminated with exception: CUDA error: an illegal memory "
            "access was encountered" + LATER),
    Wording("capture", GITHUB + "NVlabs/cuHPX/issues/11",
            raised("RuntimeError: CUDA error: operation not permitted when stream is capturing" + LATER.rstrip())),
    Wording("capture", GITHUB + "deepseek-ai/DeepEP/issues/62",
            raised("Exception: Capture cuda graph failed: CUDA error: capturing stream has unjoined work")),
    Wording("gpu-hardware", GITHUB + "huggingface/accelerate/issues/1192",
            raised("RuntimeError: CUDA error: uncorrectable ECC error encountered" + LATER.rstrip())),
    Wording("gpu-hardware", GITHUB + "NVIDIA/semantic-segmentation/issues/33",
            raised("RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered at "
                   "/pytorch/aten/src/THC/THCCachingHostAllocator.cpp:265")),
    Wording("gpu-lost", GITHUB + "kohya-ss/sd-scripts/issues/1434",
            "[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC "
            "error encountered" + LATER),
    Wording("gpu-lost", GITHUB + "wilicc/gpu-burn/issues/1",
            "[74889.644112] NVRM: GPU at PCI:0000:02:00: GPU-660d987e\n"
            "[74889.644138] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.\n"),
    Wording("gpu-lost", GITHUB + "NVIDIA/NVSentinel/issues/155",
            "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:26b5) installed in this system "
            "has\n               NVRM: fallen off the bus and is not responding to commands.\n"),
    Wording("gpu-lost", GITHUB + "akash-network/support/issues/244",
            "[Fri Aug  9 13:32:56 2024] NVRM: Xid (PCI:0000:00:08): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1). "
            "RST: No, D-RST: No\n"),
    Wording("gpu-xid", GITHUB + "akash-network/support/issues/244",
            "[Mon Aug  5 03:54:13 2024] NVRM: Xid (PCI:0000:00:07): 31, pid=2512125, name=python3.10, Ch 00000008, intr 00000000. "
            "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ 0x73ac_1c000000. Fault is of type FAULT_PDE "
            "ACCESS_TYPE_VIRT_WRITE\n"),
    Wording("cuda-error", GITHUB + "vllm-project/vllm/issues/17098",
            raised("RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered")),
    Wording("cuda-error", GITHUB + "ostris/ai-toolkit/issues/470",
            raised("torch.AcceleratorError: CUDA error: an illegal memory access was encountered\nSearch for "
                   "`cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more "
                   "information." + LATER.rstrip())),
    Wording("cuda-missing", GITHUB + "pytorch/pytorch/issues/49327",
            raised("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env "
                   "variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
                   "/venv/site-packages/torch/cuda/__init__.py:_lazy_init: torch._C._cuda_init()")),
    # ranks
    Wording("port-in-use", GITHUB + "vllm-project/vllm/issues/11617",
            raised("RuntimeError: The server socket has failed to listen on any local network address. useIpv6: 0, code: -98, name: "
                   "EADDRINUSE, message: address already in use")),
    Wording("port-in-use-line", GITHUB + "vllm-project/vllm/issues/7514",
            "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use\n"),
    Wording("nccl-watchdog", GITHUB + "XPixelGroup/BasicSR/issues/737",
            WATCHDOG + "[rank1]:[E626 06:24:44.906457629 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 1] Exception "
            "(either an error or timeout) detected by watchdog at work: 412, last enqueued NCCL work: 415, last completed NCCL "
            "work: 411.\n"),
    Wording("nccl-watchdog", GITHUB + "OFA-Sys/OFA/issues/271",
            "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=469508, "
            "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out.\n"),
    Wording("nccl-watchdog", GITHUB + "modelscope/ms-swift/issues/7992",
            "[rank4]:[E205 18:11:06.375750231 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99(EXPERT_MODEL_PARALLEL_GROUP) Rank 4] "
            "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. "
            "This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog\n"),
    Wording("nccl-watchdog", GITHUB + "xdit-project/xDiT/issues/147",
            "[rank4]:[E ProcessGroupNCCL.cpp:1316] [PG 5 Rank 0] Heartbeat monitor timed out! Process will be terminated after "
            "dumping debug info. workMetaList_.size()=2\n"),
    Wording("nccl-watchdog", "torch 2.13, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
            "[rank1]:[E1003 18:37:01.833637681 ProcessGroupNCCL.cpp:621] [Rank 1] Some NCCL operations have failed or timed out. Due "
            "to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
            "[rank1]:[E1003 18:37:01.833650825 ProcessGroupNCCL.cpp:627] [Rank 1] To avoid data inconsistency, we are taking the "
            "entire process down.\n"),
    Wording("peer-gone", GITHUB + "Megvii-BaseDetection/YOLOX/issues/702",
            raised("RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:575] Connection closed by peer "
                   "[127.0.1.1]:39827")),
    Wording("rendezvous", GITHUB + "vllm-project/vllm/issues/6775",
            raised("RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error")),
    Wording("rendezvous", GITHUB + "OpenRLHF/OpenRLHF/issues/1040",
            raised("torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/3 clients joined.")),
    Wording("collective-timeout", GITHUB + "pytorch/pytorch/issues/55571", raised("RuntimeError: Socket Timeout")),
    Wording("nccl-error", GITHUB + "hkproj/pytorch-transformer-distributed/issues/1",
            raised("torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, "
                   "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.6\nncclSystemError: System "
                   "call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\n"
                   "socketStartConnect: Connect to 10.0.0.14<52822> failed : No route to host")),
    Wording("closing-signal", "torch 2.13, distributed/elastic/multiprocessing/api.py",
            "W0409 07:28:49.531000 1359 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 1365 closing signal "
            "SIGTERM\n"),
    Wording("closing-signal", GITHUB + "pytorch/pytorch/issues/88251",
            "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 59460 closing signal SIGTERM\n"),
    Wording("closing-signal", GITHUB + "NVIDIA/nvidia-resiliency-ext/issues/18",
            "W0227 17:39:41.936000 293814 site-packages/torch/distributed/elastic/multiprocessing/api.py:766] Closing process 293866 "
            "via signal SIGTERM\n"),
    Wording("elastic-agent", "torch 2.13, distributed/elastic/multiprocessing/errors",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"),
    # data, rollout, numbers
    Wording("dataset-cache", "areno 0.10.0, dashboard/flow/dataset_cache.py",
            raised("ValueError: Dataset cache is incomplete; download the dataset again")),
    Wording("dataset-cache", GITHUB + "huggingface/datasets/issues/7867",
            raised("datasets.exceptions.NonMatchingSplitsSizesError: [{'expected': SplitInfo(name='train', num_bytes=361241546, "
                   "num_examples=12737, shard_lengths=None, dataset_name=None), 'recorded': SplitInfo(name='train', "
                   "num_bytes=332554221, num_examples=9708, shard_lengths=None, dataset_name='ard-private')}]")),
    Wording("agent-filtered", "areno 0.10.0, api/trainers/policy_only.py",
            raised("RuntimeError: all agent trajectories were filtered (0 overlong, 4 invalid); ")),
    Wording("rollout-engine", "areno 0.10.0, api/backend/mlx/generation.py", raised("RuntimeError: MLX rollout scheduler failed")),
    Wording("rollout-engine", GITHUB + "LMCache/LMCache/issues/2306",
            "(APIServer pid=697224) ERROR 01-08 17:16:15 [serving_chat.py:1278]     raise self._format_exception(outputs) from None\n"
            "(APIServer pid=697224) ERROR 01-08 17:16:15 [serving_chat.py:1278] vllm.v1.engine.exceptions.EngineDeadError: "
            "EngineCore encountered an issue. See stack trace (above) for the root cause.\n"),
    Wording("loss-scale", GITHUB + "ymcui/Chinese-LLaMA-Alpaca/issues/534",
            raised("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
                   "/venv/site-packages/deepspeed/runtime/fp16/loss_scaler.py:update_scale: raise Exception(")),
    Wording("loss-scale", GITHUB + "facebookresearch/fairseq/issues/3185",
            raised("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try lowering the "
                   "learning rate, using gradient clipping or increasing the batch size.")),
    Wording("shared-memory", GITHUB + "skycrapers/TecoGAN-PyTorch/issues/7",
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
            + raised("RuntimeError: DataLoader worker (pid 2126) is killed by signal: Bus error. It is possible that dataloader's "
                     "workers are out of shared memory. Please try to raise your shared memory limit.")),
    Wording("checkpoint-damaged", GITHUB + "ShineChen1024/MagicClothing/issues/11",
            raised("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge")),
    Wording("checkpoint-damaged", GITHUB + "safetensors/safetensors/issues/668",
            raised("safetensors_rust.SafetensorError: Error while deserializing header: header too large")),
    Wording("disk-quota", GITHUB + "KennthShang/HostG/issues/7",
            raised("OSError: [Errno 122] Disk quota exceeded: 'out/intermediate.ntw'")),
    Wording("disk-quota", GITHUB + "junyanz/pytorch-CycleGAN-and-pix2pix/issues/1456",
            raised("OSError: [Errno 122] Disk quota exceeded")),
    # hubs: older wordings than those recorded in logs/rule-hub-*.log and logs/rule-modelscope-*.log
    Wording("hub-throttled", GITHUB + "huggingface/datasets/issues/6488",
            raised("huggingface_hub.utils._errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: "
                   "https://huggingface.co/api/datasets/acme/rows")),
    Wording("hub-refused", GITHUB + "kyegomez/NeoSapiens/issues/3",
            raised("huggingface_hub.utils._errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-661471eb)\n\nCannot access "
                   "gated repo for url https://huggingface.co/acme/tiny/resolve/main/config.json.\nRepo model acme/tiny is gated. "
                   "You must be authenticated to access it.")),
    Wording("hub-refused", GITHUB + "zylon-ai/private-gpt/issues/1985",
            raised("OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
                   "https://huggingface.co/acme/tiny.\n401 Client Error. (Request ID: Root=1-66867938)\n\nCannot access gated repo for "
                   "url https://huggingface.co/acme/tiny/resolve/main/config.json.")),
    Wording("hub-refused", GITHUB + "OpenCodeInterpreter/OpenCodeInterpreter/issues/13",
            raised("huggingface_hub.utils._errors.HfHubHTTPError: 403 Client Error: Forbidden for url: "
                   "https://huggingface.co/api/repos/create (Request ID: Root=1-65df6259)\n\nYou don't have the rights to create a "
                   "dataset under this namespace")),
    Wording("hub-unreachable", GITHUB + "CASIA-LMC-Lab/FiLo/issues/10",
            raised("OSError: We couldn't connect to 'https://huggingface.co' to load this file, couldn't find it in the cached files "
                   "and it looks like acme/tiny is not the path to a directory containing a file named config.json.\nCheckout your "
                   "internet connection or see how to run the library in offline mode at "
                   "'https://huggingface.co/docs/transformers/installation#offline-mode'.")),
    Wording("hub-unreachable", GITHUB + "yuruotong1/autoMate/issues/104",
            raised("huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub and "
                   "we cannot find the requested files in the local cache. Please check your connection and try again or make sure "
                   "your Internet connection is on.")),
    Wording("hub-missing", GITHUB + "xorbitsai/inference/issues/1142",
            raised("requests.exceptions.HTTPError: 404 Client Error: Not Found for url: "
                   "https://www.modelscope.cn/api/v1/models/acme/tiny/revisions?EndTime=1710318039")),
    Wording("hub-missing", GITHUB + "modelscope/modelscope/issues/535",
            raised("requests.exceptions.HTTPError: Response details: {'Code': 10010200001, 'Message': "
                   "'获取模型版本失败，信息：获取模失败', 'RequestId': 'cb9c91e7', 'Success': False}")),
    Wording("hub-missing", "modelscope 1.40.2, hub/errors.py",
            raised("requests.exceptions.HTTPError: 404 Not Found: acme/tiny does not exist or is not accessible, Request id: 4f2 "
                   "for url: https://www.modelscope.cn/api/v1/models/acme/tiny")),
    Wording("hub-refused", GITHUB + "01-ai/Yi-1.5/issues/15",
            raised("requests.exceptions.HTTPError: Authentication token does not exist, failed to access model acme/tiny which may "
                   "not exist or may be                 private. Please login first.")),
    # configuration, evaluation
    Wording("deepspeed-mismatch", "transformers 5.24.0, integrations/deepspeed.py",
            raised("ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n"
                   "- ds optimizer.params.lr=0.0001 vs hf learning_rate=5e-06\n"
                   "The easiest method is to set these DeepSpeed config values to 'auto'.")),
    Wording("metric-for-best-key", GITHUB + "Machine-Learning-for-Medical-Language/cnlp_transformers/pull/190",
            raised("KeyError: 'eval_one_score'",
                   "/venv/site-packages/transformers/trainer.py:_save_checkpoint: metric_value = metrics[metric_to_check]")),
    Wording("metric-for-best", "lightning 2.6.6, pytorch/callbacks/early_stopping.py",
            raised("RuntimeError: Early stopping conditioned on metric `val_f1` which is not available. Pass in or modify your "
                   "`EarlyStopping` callback to use any of the following: `train_loss`, `val_loss`")),
    Wording("metric-for-best", "lightning 2.6.6, pytorch/callbacks/model_checkpoint.py",
            raised("lightning.fabric.utilities.exceptions.MisconfigurationException: `ModelCheckpoint(monitor='val_f1')` could not "
                   "find the monitored key in the returned metrics: ['train_loss', 'epoch', 'step']. HINT: Did you call "
                   "`log('val_f1', value)` in the `LightningModule`?")),
    # schedulers
    Wording("time-limit", GITHUB + "ZettaAI/zetta_utils/issues/671",
            "srun: Job step aborted: Waiting up to 47 seconds for job step to finish.\n"
            "slurmstepd: error: *** JOB 494583 ON node7 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***\n"
            "slurmstepd: error: *** STEP 494583.0 ON node7 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***\n"),
    Wording("time-limit", GITHUB + "marbl/canu/issues/1067",
            "slurmstepd: *** JOB 830329 CANCELLED AT 2018-08-06T17:21:44 DUE TO TIME LIMIT on n447 ***\n"),
    Wording("preempted", GITHUB + "SystemsGenetics/GEMmaker/pull/242",
            "slurmstepd: error: *** JOB 32391783 ON cn119 CANCELLED AT 2021-06-18T13:05:36 DUE TO PREEMPTION ***\n"),
    Wording("preempted", GITHUB + "facebookincubator/submitit/issues/1708",
            "submitit WARNING (2022-08-12 02:06:11,453) - Caught signal SIGUSR2 on node7: this job is preempted.\n"
            "slurmstepd: error: *** JOB 608 ON node7 CANCELLED AT 2022-08-12T02:06:12 DUE TO JOB REQUEUE ***\n"
            "slurmstepd: error: *** STEP 608.0 ON node7 CANCELLED AT 2022-08-12T02:06:12 DUE TO JOB REQUEUE ***\n"
            "submitit WARNING (2022-08-12 02:06:12,301) - Bypassing signal SIGTERM\n"
            "srun: error: node7: tasks 2-3: Exited with exit code 1\n"),
    Wording("node-failure", "slurm, src/slurmd/slurmstepd/req.c, and srun",
            "srun: error: Node failure on node7\nsrun: Job step aborted: Waiting up to 62 seconds for job step to finish.\n"
            "slurmstepd: error: *** STEP 1943824.0 ON node3 CANCELLED AT 2023-03-06T03:17:51 DUE TO NODE FAILURE, SEE SLURMCTLD LOG "
            "FOR DETAILS ***\n"),
    Wording("node-failure", "slurm, src/slurmd/slurmstepd/req.c",
            "slurmstepd: error: *** STEP 77.0 ON node3 UNCORRECTABLE MEMORY ERROR AT 2023-03-06T03:17:51 ***\n"),
    Wording("slurm-cancelled", GITHUB + "facebookincubator/submitit/issues/1677",
            "slurmstepd: error: *** STEP 71606.0 ON node7 CANCELLED AT 2022-03-31T21:25:40 ***\n"
            "slurmstepd: error: *** JOB 71606 ON node7 CANCELLED AT 2022-03-31T21:25:40 ***\n"),
    Wording("slurm-cancelled", GITHUB + "bcbio/bcbio-nextgen/issues/741",
            "slurmstepd: *** JOB 1479012 CANCELLED AT 2015-02-04T06:33:25 *** on node7\n"),
    Wording("submission", GITHUB + "elasticluster/elasticluster/issues/553",
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n"),
    Wording("submission", GITHUB + "desihub/desitarget/issues/628",
            "srun: error: Unable to allocate resources: Requested time limit is invalid (missing or exceeds some limit)\n"),
    Wording("node-died", GITHUB + "ray-project/ray/issues/54970",
            raised("ray.exceptions.NodeDiedError: Task failed due to the node (where this task was running)  was dead or "
                   "unavailable.\n\nThe node IP: 10.0.0.4, node ID: 74673a35\n\nThis can happen if the instance where the node was "
                   "running failed, the node was preempted, or raylet crashed unexpectedly (e.g., due to OOM) etc.")),
    Wording("node-died", GITHUB + "ray-project/ray/issues/34971",
            raised("ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task." + ACTOR
                   + "The actor is dead because its node has died. Node Id: 2eea4cfb")),
    Wording("node-died", GITHUB + "hiyouga/EasyR1/issues/324",
            raised("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task." + ACTOR
                   + "The actor is dead because its owner has died. Owner Id: 01000000ffff Owner Ip address: 10.0.0.9 Owner worker "
                   "exit type: SYSTEM_ERROR Worker exit detail: Owner's node has crashed.")),
    Wording("ray-actor", GITHUB + "ray-project/ray/issues/18586",
            raised("ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.")),
    Wording("ray-actor", "ray 2.x, src/ray/gcs/gcs_server/gcs_actor_manager.cc",
            raised("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task." + ACTOR
                   + "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
                   "Worker unexpectedly exits with a connection error code 2. End of file.")),
    Wording("signal-handler", GITHUB + "facebookincubator/submitit/pull/1701",
            "submitit WARNING (2022-07-12 04:18:45,881) - Caught signal SIGHUP on node7: this job is preempted.\n"
            "submitit INFO (2022-07-12 04:18:45,912) - Requeued job 60601445 (3 remaining timeouts)\n"),
    Wording("native-exception", GITHUB + "ml-explore/mlx-examples/issues/664",
            "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: "
            "Internal Error (0000000e:Internal Error)\n"),
    Wording("native-exception", GITHUB + "NVIDIA/semantic-segmentation/issues/33", "terminate called without an active exception\n"),
    Wording("cuda-error-line", GITHUB + "xieyuser/GS-LIVM/issues/12",
            "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an illegal memory access was "
            "encountered" + LATER),
)
"""Every wording, in the order of the rules."""


def first_of(rule: str) -> str:
    """The first wording of a rule."""
    return next(wording.text for wording in WORDINGS if wording.rule == rule)
