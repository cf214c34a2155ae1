"""What a training run is made of, before anything moves: fabric, programs, calls, and what of it is simulated once for many."""

from typing import NamedTuple

import numpy as np

import topologies
import workload
from compute.api import Device, load_device
from netsim import collectives
from netsim.config import Run
from netsim.config.workload import Training
from netsim.kernels.structs import Array, Groups, Routes, Topology
from netsim.network.flow.fluid import Builder, Fluid
from netsim.simulate import fold as folding
from netsim.simulate.calls import CallTable, table


class Model(NamedTuple):
    """A training run ready to be executed; `simulated` parts are the folded ones where `fold` is not None."""

    topology: Topology
    routes: Routes
    device: Device
    work: workload.Workload
    full_table: CallTable
    full_fluid: Fluid
    fold: folding.Fold | None
    program: Array  # int32[n simulated] program of each simulated GPU
    slow: Array  # float64[n simulated]
    groups: Groups
    table: CallTable
    fluid: Fluid
    changes: tuple[Array, Array, Array]  # timed changes of link capacity, on simulated links

    @property
    def gpu_of(self) -> Array:
        """Simulated GPU that stands for each GPU, int64[n_gpus]."""
        return np.arange(self.topology.n_gpus) if self.fold is None else self.fold.gpu_class

    @property
    def link_of(self) -> Array:
        """Simulated link that stands for each link, int64[L]."""
        return np.arange(len(self.topology.link_rate)) if self.fold is None else self.fold.link_class


def build(run: Run) -> Model:
    """Build everything that a training run needs; InputError where it cannot be."""
    topology = topologies.build(run.topology)
    routes = topologies.routes(topology, run.topology, run.seed)
    assert run.compute is not None and isinstance(run.workload, Training)
    device = load_device(run.compute)
    work = workload.build(run.workload, topology.n_gpus, topology.gpus_per_node, device, run.compute.step_times)
    builder = Builder(topology, routes, run.network.qps)
    platform = collectives.platform_of(topology, run.compute.device.arch, run.topology, run.nccl)
    calls = table(work, builder, platform, run.nccl, topology.gpus_per_node)
    fluid = builder.fluid()
    slow = slowdown(run, topology.n_gpus)
    changes = topologies.fault_events(topology, run.topology)
    whole = Model(topology, routes, device, work, calls, fluid, None, work.gpu_program, slow, work.groups, calls, fluid, changes)
    if run.simulate.fold == "off" or run.simulate.jitter > 0 or run.network.engine == "packet":
        return whole
    return _folded(whole)


def slowdown(run: Run, n_gpus: int) -> Array:
    """Factors on the kernel times of every GPU for the whole run, float64[n_gpus]: half-lognormal stragglers, and GPUs that are named."""
    rng = np.random.Generator(np.random.Philox(key=run.seed))
    slow = np.exp(np.abs(run.simulate.stragglers * rng.standard_normal(n_gpus)))
    for gpu in run.simulate.slow_gpus:
        slow[gpu.gpu] *= gpu.factor
    return slow


def _folded(model: Model) -> Model:
    """Keep one GPU, group, link and bundle of each class."""
    gpu_colour = model.work.gpu_program.astype(np.uint64) ^ model.slow.view(np.uint64)
    link_colour = model.fluid.capacity.view(np.uint64).copy()
    t, link, rate = model.changes
    np.add.at(link_colour, link, folding.mix(t.astype(np.uint64)) + folding.mix(folding.mix(rate.astype(np.float64).view(np.uint64))))
    fold = folding.partition(model.fluid, model.full_table, model.work.groups, gpu_colour, link_colour)
    fluid, calls = folding.fold_fluid(model.fluid, model.full_table, fold)
    kept = np.isin(link, fold.link_rep)
    return model._replace(
        fold=fold,
        program=model.work.gpu_program[fold.gpu_rep],
        slow=model.slow[fold.gpu_rep],
        groups=folding.fold_groups(model.work.groups, fold),
        table=calls,
        fluid=fluid,
        changes=(t[kept], fold.link_class[link[kept]].astype(np.int32), rate[kept]),
    )
