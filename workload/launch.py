"""In which order kernels of different streams reach the GPU: CUDA_DEVICE_MAX_CONNECTIONS, the number of its launch queues.

- One queue ("in order"): a kernel starts no sooner than the one that the host launched before it, on whatever stream. A collective that
  was launched before a GEMM therefore has its thread blocks when the GEMM comes, and runs beside it. The price are false dependencies: a
  collective that waits for an earlier one of its own stream holds up all kernels behind it.
- More queues on GPUs before Blackwell ("late"): streams are independent, but a collective on a stream of normal priority finds the GPU
  full of the thread blocks of the kernel that started meanwhile, and gets its own when that kernel ends.
- More queues from Blackwell on ("free"): streams are independent, and a collective finds room beside a kernel.

Megatron requires one queue with tensor or context parallelism on GPUs before Blackwell, and more than one with full sharding and with
overlapped expert exchanges, which false dependencies would undo. CUDA's default is 8. Source: Megatron-LM `training/arguments.py`, CUDA
C++ programming guide ("CUDA environment variables").
"""

from typing import Literal

from netsim.config.workload import Training

Launch = Literal["in order", "late", "free"]
EARLIER = ("volta", "turing", "ampere", "ada", "hopper")
"""Architectures before Blackwell."""
DEFAULT = 8


def queues(training: Training, arch: str) -> int:
    """Return the number of launch queues: as set, or as Megatron requires."""
    if training.kernels.connections:
        return training.kernels.connections
    needs_more = training.data_parallel.stage == "full" or training.experts.overlap
    return 1 if arch in EARLIER and not needs_more and (training.parallel.tp > 1 or training.parallel.cp > 1) else DEFAULT


def launch_of(training: Training, arch: str) -> Launch:
    """Return the rule by which kernels of different streams start."""
    if queues(training, arch) == 1:
        return "in order"
    return "late" if arch in EARLIER else "free"
