"""Section `compute` of a run file: the GPU, and measured times that replace the kernel table.

A device card (compute/devices/NAME.yaml) holds physical figures of one GPU, each with its source beside it in the file; `use: h100` takes a
ready one and keys beside it override single figures.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from netsim.config.fields import Count, Flops, Rate, Share, Sigma, Size, Time

DTYPES = ("bf16", "fp16", "fp8", "fp8_blockwise", "mxfp8", "nvfp4", "fp32")
"""Precisions of a kernel; scaled ones (fp8_blockwise, mxfp8, nvfp4) carry block scales beside the values."""


@dataclass(frozen=True)
class DeviceCard:
    """Physical figures of one GPU.

    name: as the vendor writes it.
    arch: 'ampere', 'hopper', 'blackwell' or a name of your own; picks the ratios in compute/tables/ratios.csv that stand in for
    measurements, and what NCCL is like (with a name of your own, as on the generation with such scale-up links).
    sms: streaming multiprocessors.
    memory: device memory; hbm: peak bandwidth of it; hbm_efficiency: the share that training's memory-bound kernels reach when long.
    peak: dense (not sparse) tensor-core rate by precision; fp32 is the CUDA-core rate that fp32 kernels get.
    sustained: the rate at which long series of GEMMs settle under the power limit, by precision; no GEMM of a training run is faster. Where
    a precision is missing, nothing is taken off what the table says.
    launch: duration of the smallest kernel; memory-bound kernels take this plus bytes over bandwidth.
    host: time that the host takes to issue one kernel, with the framework around it; a GPU never runs ahead of its host.
    gap: idle time between two kernels of one stream while the host runs ahead.
    nvlink: scale-up bandwidth of one GPU, one direction; nvlink_efficiency: the share that NCCL moves.
    gemm_efficiency, attention_efficiency: share of peak that large kernels reach where no table speaks.
    memory_efficiency: share of `hbm` that a memory-bound kernel kind reaches, as `kind` or `kind.bwd`; others use `hbm_efficiency`.
    tables: kernel tables (names in compute/tables or paths); the one that is surest of a kernel answers, the last one where they are equal;
    what the earlier ones say is less sure by `systematic`.
    spread: relative standard deviation of compute-bound kernels among GPUs of this kind, whose chips and cooling differ; GEMMs and
    attention of a run go at the pace of the slowest of its GPUs.
    systematic: relative standard deviation that all kernels share (campaigns of measurement that disagree, clocks, software versions).
    projected_from: the base of a card that `device project` wrote.
    projection_sigma: relative standard deviation that projection added to every answer.
    """

    name: str
    arch: str
    sms: Count
    memory: Size
    hbm: Rate
    peak: dict[str, Flops]
    launch: Time
    sustained: dict[str, Flops] = field(default_factory=dict)
    hbm_efficiency: Share = 0.75
    host: Time = 0
    gap: Time = 1_000_000
    nvlink: Rate = 0.0
    nvlink_efficiency: Share = 0.8
    gemm_efficiency: Share = 0.7
    attention_efficiency: Share = 0.6
    memory_efficiency: dict[str, Share] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    spread: Share = 0.0
    systematic: Share = 0.05
    projected_from: str = ""
    projection_sigma: Sigma = 0.0

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for what single fields cannot say."""
        for name in ("peak", "sustained"):
            for dtype in getattr(self, name):
                if dtype not in DTYPES:
                    yield f"{name}.{dtype}", f"expected one of {', '.join(DTYPES)}; got {dtype}"
                elif getattr(self, name)[dtype] <= 0:
                    yield f"{name}.{dtype}", "expected a compute rate above 0; got 0"
        if "bf16" not in self.peak:
            yield "peak", f"expected a rate for bf16; got {', '.join(self.peak) or 'none'}"
        for name in ("hbm", "hbm_efficiency", "gemm_efficiency", "attention_efficiency"):
            if getattr(self, name) <= 0:
                yield name, "expected more than 0; got 0"


@dataclass(frozen=True)
class StepTimes:
    """Measured times of one microbatch that replace sums of kernel times; leave out what was not measured.

    layer_forward, layer_backward: one transformer layer of one GPU, communication not included.
    stage_forward, stage_backward: one entry per pipeline stage (virtual stages in order of layers), embedding and head included,
    communication not included; they win over the per-layer times.
    optimizer: the optimizer step of one GPU, once per iteration.
    """

    layer_forward: Time | None = None
    layer_backward: Time | None = None
    stage_forward: tuple[Time, ...] = ()
    stage_backward: tuple[Time, ...] = ()
    optimizer: Time | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) where one direction is given without the other."""
        if len(self.stage_forward) != len(self.stage_backward):
            yield "stage_backward", f"expected as many entries as stage_forward ({len(self.stage_forward)}); got {len(self.stage_backward)}"
        if (self.layer_forward is None) != (self.layer_backward is None):
            yield "layer_backward", "expected layer_forward and layer_backward together; got one of them"


@dataclass(frozen=True)
class Compute:
    """How long kernels take.

    device: the GPU, `{use: h100}` or a card of your own.
    step_times: measured per-layer or per-stage times that replace the table.
    """

    device: DeviceCard
    step_times: StepTimes = field(default_factory=StepTimes)
