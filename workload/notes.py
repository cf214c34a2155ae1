"""What is unusual about a layout that can run, in words."""

from collections.abc import Iterator

from netsim.config.workload import Training
from workload.layout import Layout, layout_of


def notes(training: Training, n_gpus: int, gpus_per_node: int) -> Iterator[tuple[str, str]]:
    """Yield (field, sentence) of what is unusual."""
    par, lay = training.parallel, layout_of(training, n_gpus, gpus_per_node)
    if par.tp > gpus_per_node:
        yield "parallel.tp", f"tensor parallelism of {par.tp} crosses nodes of {gpus_per_node} GPUs: its traffic goes over the network"
    if lay.ep > lay.dp * lay.cp * lay.tp // lay.etp:
        yield "parallel.ep", f"expert parallelism of {lay.ep} is above tp x dp x cp / etp"
    if lay.ep > lay.dp:
        yield "parallel.ep", f"expert parallelism of {lay.ep} is above dp = {lay.dp}: expert groups span tensor- or context-parallel ranks"
    if lay.pp > 1 and lay.microbatches < lay.pp:
        yield "global_batch", f"{lay.microbatches} microbatches on {lay.pp} stages: the pipeline never fills"
    if lay.tp == 1 and par.sequence_parallel is True and par.tp_comm_overlap:
        yield "parallel.tp_comm_overlap", "has no effect with tp = 1"
    yield from _context_notes(training)
    yield from _queue_notes(training)
    yield from _idle_options(training, lay)
    if training.model.experts and training.experts.imbalance > 1:
        yield "experts.imbalance", "the load of the busiest rank is charged to all ranks: every exchange waits for it"


def _context_notes(training: Training) -> Iterator[tuple[str, str]]:
    par, m = training.parallel, training.model
    if par.cp > 1 and par.cp_comm_type in ("p2p", "all_gather") and (m.heads // par.tp) % par.cp:
        yield (
            "parallel.cp",
            f"{par.cp} does not divide the {m.heads // par.tp} heads of a GPU: {par.cp_comm_type} cuts the sequence and does not mind, a2a "
            "would be refused",
        )
    if m.attention == "gqa" and par.tp > m.groups:
        yield "parallel.tp", f"{par.tp} GPUs share {m.groups} key-value heads: each head is held and computed {par.tp // m.groups} times"
    if par.hierarchical_sizes and par.cp_comm_type != "a2a+p2p":
        yield "parallel.hierarchical_sizes", f"has no effect with cp_comm_type: {par.cp_comm_type}"


def _queue_notes(training: Training) -> Iterator[tuple[str, str]]:
    number, par = training.kernels.connections, training.parallel
    if number and number > 1 and (par.tp > 1 or par.cp > 1) and training.data_parallel.stage != "full":
        yield (
            "kernels.connections",
            f"Megatron refuses {number} with tp or cp on GPUs before Blackwell: collectives launched beside GEMMs come after them there",
        )
    if number == 1 and training.experts.overlap:
        yield "kernels.connections", "with 1, exchanges with experts that wait for one another hold up the compute beside them"


def _idle_options(training: Training, lay: Layout) -> Iterator[tuple[str, str]]:
    """Options that change nothing here."""
    dp, how = training.data_parallel, training.recompute
    if dp.overlap_grad_reduce and lay.dp * lay.cp == 1:
        yield "data_parallel.overlap_grad_reduce", "has no effect with dp x cp = 1"
    if dp.stage == "full" and (dp.overlap_grad_reduce or dp.overlap_param_gather):
        yield "data_parallel.sharding", "full sharding gathers and scatters beside compute in any case; the overlap flags change nothing"
    if how.granularity == "none" and how.layers:
        yield "recompute.layers", "has no effect with granularity: none"
    if how.granularity == "full" and (how.layers or 0) > training.model.layers // (lay.pp * training.parallel.vpp):
        yield "recompute.layers", f"{how.layers} is more than (virtual) stages have: they recompute all of theirs"
    if training.experts.shared_overlap and not training.model.shared_ffn:
        yield "experts.shared_overlap", "has no effect in a model without shared experts"
    if training.experts.overlap and lay.microbatches == 1:
        yield "experts.overlap", "has no effect with one microbatch: there is no other whose compute could run beside its exchanges"
    if training.pipeline.scatter_gather and training.parallel.sequence_parallel:
        yield "pipeline.scatter_gather", "has no effect with sequence_parallel, which sends shards in any case"
