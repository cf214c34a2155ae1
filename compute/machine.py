"""A GPU, or a CPU in its place, that executes kernels with PyTorch and tells how long each takes.

On the GPU the caches are flushed before every run (a buffer of twice the L2 is zeroed, as Triton's `do_bench` does), for a training step
works on tensors that are no longer there. A kernel's time is that between two CUDA events around it. Launches must not enter: kernel and
events wait behind a sleeping kernel until the host has issued them, as NVBench's blocking kernel has it, which serves chains of
operations and backward passes as well as single launches (a CUDA graph could not be captured around all of them). Warm-up goes on for a
time, not for a number of runs, so that clocks rise, cuBLAS picks and compilers finish.

A CPU is timed by the clock on the wall: that shows how the command works, not how long a GPU takes.
"""

import gc
import subprocess
import time
import warnings
from collections.abc import Callable
from typing import Any

from compute.kernels import Kernel
from compute.ways import LeftOut, Way
from netsim.errors import InputError

WARM_S = 0.1
"""Warm-up of a kernel."""
SETUP_S, COMPILE_S = 0.1, 4.0
"""Roughly, for the time that is left: inputs and a first call of a kernel, and what torch.compile takes."""
CYCLES_PER_S = 2e9
"""At most so many cycles of a GPU's clock in a second: what the sleep is counted in."""
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class Torch:
    """PyTorch on the first CUDA device or on the CPU; `InputError` in one line where it is not there.

    loss: which of Megatron's losses 'cross_entropy' stands for (`kernels.cross_entropy` of a run file).
    """

    def __init__(self, device: str = "cuda", loss: str = "unfused") -> None:
        try:
            import torch
        except ImportError:
            raise InputError("device measure: expected PyTorch (pip install 'netsim-llm[measure]'); got no module named torch") from None
        if device == "cuda" and not torch.cuda.is_available():
            raise InputError(f"device measure: expected a CUDA device (or --on cpu, to try it out); got none (torch {torch.__version__})")
        from compute.operations import COMPILED, KINDS

        self.torch: Any = torch
        self.kinds = KINDS
        self._compiled = COMPILED
        self.device, self.loss = device, loss
        self.capability: tuple[int, int] = (0, 0)
        self.name = f"a CPU, no GPU (torch {torch.__version__})"
        if device == "cuda":
            self.capability = torch.cuda.get_device_capability()
            self.name = f"{torch.cuda.get_device_name()} (torch {torch.__version__})"
            cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 128 << 20
            self._flush = torch.empty(2 * cache, dtype=torch.int8, device="cuda")

    def random(self, *shape: int, dtype: str = "bf16") -> Any:
        """Normal numbers: power, and hence clocks, depend on the data."""
        return self.torch.randn(*shape, device=self.device, dtype=getattr(self.torch, DTYPES[dtype]))

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as torch.compile makes it for the shapes at hand; what was compiled for others is forgotten."""
        self.torch._dynamo.reset()
        return self.torch.compile(function, dynamic=False)

    def prepare(self, kernel: Kernel) -> Way:
        """The first way that runs; `LeftOut` with the reason where there is none."""
        if kernel.kind not in self.kinds:
            raise LeftOut("PyTorch has no operation of this kind")
        reasons: list[str] = []
        try:
            self._forget()
            for way in self.kinds[kernel.kind](self, kernel):
                if self._runs(way, reasons):
                    return way
        except (self.torch.cuda.OutOfMemoryError, MemoryError):
            raise LeftOut("it does not fit into memory") from None
        except RuntimeError as error:
            reasons.append(_sentence(error))
        raise LeftOut(reasons[0])

    def _runs(self, way: Way, reasons: list[str]) -> bool:
        """Whether a first call succeeds; else the reason is added."""
        try:
            with warnings.catch_warnings(action="ignore"):
                way.call(*way.inputs)
                self._wait()
        except self.torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a release, a compiler or a GPU objects to
            reasons.append(f"{way.how}: {_sentence(error)}")
            return False
        return True

    def expected_s(self, kernel: Kernel, time_us: float, repeats: int) -> float:
        """How long it will take to time a kernel of about `time_us`."""
        return SETUP_S + (COMPILE_S if kernel.kind in self._compiled else 0.0) + WARM_S + repeats * time_us * 1e-6

    def seconds(self, way: Way, repeats: int) -> list[float]:
        """Durations of runs once it is warm."""
        host_s, begin = float("inf"), time.perf_counter()
        while True:
            start = time.perf_counter()
            way.call(*way.inputs)
            host_s = min(host_s, time.perf_counter() - start)
            self._wait()
            if time.perf_counter() - begin > WARM_S:
                break
        if self.device == "cuda":
            return self._between_events(way, repeats, host_s)
        return [self._on_the_wall(way) for _ in range(repeats)]

    def state(self) -> str:
        """Clock and power limit as nvidia-smi tells them right after a run; empty where it does not."""
        if self.device != "cuda":
            return ""
        query = ["nvidia-smi", f"--id={self._bus()}", "--query-gpu=clocks.sm,clocks.max.sm,power.limit", "--format=csv,noheader,nounits"]
        try:
            told = subprocess.run(query, capture_output=True, text=True, timeout=5, check=True).stdout
            clock, most, limit = (part.strip() for part in told.strip().split(","))
        except (OSError, ValueError, subprocess.SubprocessError):
            return ""
        return f"SM clock {clock} of {most} MHz, power limit {limit} W"

    def _bus(self) -> str:
        p = self.torch.cuda.get_device_properties(0)
        return f"{p.pci_domain_id:08x}:{p.pci_bus_id:02x}:{p.pci_device_id:02x}.0"

    def _between_events(self, way: Way, repeats: int, host_s: float) -> list[float]:
        """Every run flushed, behind a sleep of twice the time that the host takes to issue it."""
        cuda = self.torch.cuda
        pairs = [tuple(cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(repeats)]
        for start, end in pairs:
            self._flush.zero_()
            cuda._sleep(int(2 * host_s * CYCLES_PER_S))
            start.record()
            way.call(*way.inputs)
            end.record()
        cuda.synchronize()
        return [float(start.elapsed_time(end)) * 1e-3 for start, end in pairs]

    def _on_the_wall(self, way: Way) -> float:
        start = time.perf_counter()
        way.call(*way.inputs)
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def _forget(self) -> None:
        """Free what the kernel before this one held."""
        if self.device == "cuda":
            gc.collect()
            self.torch.cuda.empty_cache()


def _sentence(error: Exception) -> str:
    """The first sentence of a message, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0].split(". ")[0].rstrip(".") if lines else type(error).__name__
