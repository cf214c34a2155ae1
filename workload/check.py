"""What a layout asks for that cannot be, in words; notes.py says what is merely unusual."""

from collections.abc import Iterator
from typing import NamedTuple

from netsim.config.workload import Training
from netsim.errors import InputError
from workload.found import found
from workload.layout import layout_of, stage_of
from workload.notes import notes
from workload.programs import depth_of, pipe_of, schedule_of
from workload.shape import Shape
from workload.stages import chunks


class Finding(NamedTuple):
    """One sentence about a field; `fatal` where the run cannot start."""

    field: str
    sentence: str
    fatal: bool


def check(training: Training, n_gpus: int, gpus_per_node: int = 8) -> list[Finding]:
    """Return everything worth saying about a layout on `n_gpus` GPUs."""
    found_problems = [Finding(f, text, True) for f, text in problems(training, n_gpus, gpus_per_node)]
    return found_problems or [Finding(f, text, False) for f, text in notes(training, n_gpus, gpus_per_node)]


MOST_MICROBATCHES = 65_536
"""Of an iteration; programs grow with them."""


def problems(training: Training, n_gpus: int, gpus_per_node: int = 8) -> Iterator[tuple[str, str]]:
    """Yield (field, sentence) of everything that cannot be."""
    sizes = list(_sizes(training, n_gpus))
    yield from sizes
    yield from _shapes(training)
    if not sizes:
        yield from _options(training, n_gpus, gpus_per_node)


def _sizes(training: Training, n_gpus: int) -> Iterator[tuple[str, str]]:
    par = training.parallel
    dense = par.tp * par.pp * par.cp
    etp = par.etp or par.tp
    if n_gpus % dense:
        yield "parallel", f"expected tp x pp x cp = {dense} to divide the {n_gpus} GPUs; {n_gpus % dense} are left over"
        return
    if par.dp and par.dp * dense != n_gpus:
        yield "parallel.dp", f"expected tp x pp x cp x dp = {n_gpus} GPUs, so {n_gpus // dense}; got {par.dp}"
    if training.model.experts and n_gpus % (etp * par.ep * par.pp):
        yield "parallel.ep", f"expected etp x ep x pp = {etp * par.ep * par.pp} to divide the {n_gpus} GPUs"
    elif etp * par.ep * par.pp > n_gpus:
        yield "parallel.etp", f"expected etp x ep x pp of at most the {n_gpus} GPUs; got {etp * par.ep * par.pp}"
        return
    dp = n_gpus // dense
    if training.global_batch // (training.micro_batch * dp) > MOST_MICROBATCHES:
        most = MOST_MICROBATCHES * training.micro_batch * dp
        yield "global_batch", f"expected at most {MOST_MICROBATCHES:,} microbatches, {most:,} sequences; got {training.global_batch:,}"
    if training.global_batch % (training.micro_batch * dp):
        unit = training.micro_batch * dp
        yield (
            "global_batch",
            f"expected a multiple of micro_batch x dp = {training.micro_batch} x {dp} = {unit}; got {training.global_batch}",
        )
    instances = training.data_parallel.instances
    if (dp * par.cp) % instances:
        yield "data_parallel.instances", f"expected a divisor of dp x cp = {dp * par.cp}; got {instances}"
    edp = n_gpus // (etp * par.ep * par.pp)
    if training.model.experts and edp % instances:
        yield "data_parallel.instances", f"expected a divisor of the {edp} copies of an expert; got {instances}"
    if instances > 1 and training.data_parallel.stage == "none":
        yield "data_parallel.instances", "expected a sharded optimizer with it; got sharding: none"


def _divides(field: str, value: int, by: int, what: str) -> Iterator[tuple[str, str]]:
    if value % by:
        yield field, f"expected a multiple of {what} = {by}; got {value}"


def _shapes(training: Training) -> Iterator[tuple[str, str]]:
    m, par, recompute = training.model, training.parallel, training.recompute
    yield from _divides("model.heads", m.heads, par.tp, "parallel.tp")
    yield from _divides("model.ffn", m.ffn, par.tp, "parallel.tp")
    yield from _divides("model.hidden", m.hidden, par.tp, "parallel.tp")
    if m.groups % par.tp and par.tp % m.groups:
        yield "model.kv_heads", f"expected a multiple or a divisor of parallel.tp = {par.tp}; got {m.groups}"
    cut = par.cp * 2 if par.cp > 1 else 1
    yield from _divides("sequence", training.sequence, cut, "2 x parallel.cp")
    if par.sequence_parallel:
        yield from _divides("sequence", training.sequence // par.cp, par.tp, "parallel.tp after the cut by cp")
    if par.cp > 1:
        yield from _context(training)
    if m.experts:
        yield from _experts(training)
    elif par.ep > 1:
        yield "parallel.ep", f"expected 1 for a model without experts; got {par.ep}"
    if recompute.granularity == "selective":
        if recompute.layers:
            yield "recompute.layers", f"expected it with recompute.granularity: full only; got {recompute.layers}"
        for module in recompute.modules:
            if (module in ("moe", "moe_act") and not m.experts) or (module == "mla_up_proj" and m.attention != "mla"):
                yield "recompute.modules", f"expected modules that the model has; got {module}"


def _context(training: Training) -> Iterator[tuple[str, str]]:
    m, par = training.model, training.parallel
    if par.cp_comm_type in ("a2a", "a2a+p2p"):
        a2a = par.cp if par.cp_comm_type == "a2a" else (par.hierarchical_sizes or (1,))[0]
        yield from _divides("model.heads", m.heads, par.tp * a2a, "tp x cp (a2a exchanges heads)")
        if m.attention != "mla" and m.groups % (par.tp * a2a):
            yield "model.kv_heads", f"expected a multiple of tp x cp = {par.tp * a2a} (a2a exchanges heads); got {m.groups}"
    if par.cp_comm_type == "a2a+p2p":
        sizes = par.hierarchical_sizes
        if len(sizes) != 2 or sizes[0] * sizes[1] != par.cp:
            yield "parallel.hierarchical_sizes", f"expected two sizes whose product is cp = {par.cp}; got {list(sizes)}"
    if training.model.window and par.cp_comm_type == "p2p":
        yield "parallel.cp_comm_type", "expected all_gather or a2a with sliding-window attention; got p2p"


def _experts(training: Training) -> Iterator[tuple[str, str]]:
    m, par = training.model, training.parallel
    yield from _divides("model.experts", m.experts, par.ep, "parallel.ep")
    yield from _divides("model.expert_ffn", m.expert_ffn, par.etp or par.tp, "parallel.etp")
    yield from _divides("model.shared_ffn", m.shared_ffn, par.tp, "parallel.tp")
    if par.tp > 1 and not par.sequence_parallel:
        yield "parallel.sequence_parallel", "expected true with experts and tp > 1; got false"
    if training.experts.shared_overlap and training.experts.dispatcher == "allgather":
        yield "experts.shared_overlap", "expected dispatcher alltoall or flex; got allgather"
    if training.experts.capacity_factor and training.experts.dispatcher == "allgather":
        yield "experts.capacity_factor", "expected dispatcher alltoall or flex with it; got allgather"
    if training.precision.dispatch == "fp8" and training.experts.dispatcher == "allgather":
        yield "precision.dispatch", "expected dispatcher alltoall or flex with fp8; got allgather"
    if training.experts.dispatcher == "flex" and par.ep * (par.etp or par.tp) == 1:
        yield "experts.dispatcher", "expected ep x etp above 1 with flex; got 1"
    if training.experts.pad_to_capacity and not training.experts.capacity_factor:
        yield "experts.pad_to_capacity", "expected capacity_factor with it; got none"
    try:
        found("dispatchers", training.experts.dispatcher)
    except InputError as error:
        yield "experts.dispatcher", error.lines[0]


def _options(training: Training, n_gpus: int, gpus_per_node: int) -> Iterator[tuple[str, str]]:
    par, pipe, dp = training.parallel, training.pipeline, training.data_parallel
    s = Shape(training, layout_of(training, n_gpus, gpus_per_node))
    if training.model.experts and (stage_of(s.lay) != stage_of(s.lay, expert=True)).any():
        sizes = f"tp x cp x dp = {s.lay.tp} x {s.lay.cp} x {s.lay.dp}, of experts etp x ep x edp = {s.lay.etp} x {s.lay.ep} x {s.lay.edp}"
        yield "parallel.order", f"expected experts on the stage of their layer ({sizes}), as with pp last; got {par.order}"
    yield from _overlap(training)
    yield from _split(training)
    if training.kernels.connections == 1 and dp.stage == "full":
        yield "kernels.connections", "expected more than 1 with full sharding, whose gathers would hold up compute; got 1"
    if dp.param_dtype == "fp8" and not s.narrow:
        yield "data_parallel.param_dtype", f"expected precision.gemm in 8 bits or less with fp8; got {training.precision.gemm}"
    if par.tp_comm_overlap and par.tp > 1 and not par.sequence_parallel:
        yield "parallel.tp_comm_overlap", "expected sequence_parallel with it; got false"
    if dp.overlap_param_gather and dp.stage == "none":
        yield "data_parallel.overlap_param_gather", "expected a sharded optimizer with it; got sharding: none"
    if dp.overlap_param_gather and not dp.overlap_grad_reduce:
        yield "data_parallel.overlap_param_gather", "expected overlap_grad_reduce with it; got false"
    try:
        schedule_of(s)
    except InputError as error:
        yield "pipeline.schedule", error.lines[0]
        return
    yield from _virtual(training, s)
    try:
        pipe_of(s)
        chunks(training, depth_of(s))
    except ValueError as error:
        field, _, sentence = str(error).partition(": ")
        yield field, sentence
    for sentence in getattr(schedule_of(s), "problems", lambda pipe: [])(pipe_of(s)):
        yield "pipeline.schedule", sentence
    if pipe.batch_p2p and pipe_of(s).overlap:
        yield "pipeline.batch_p2p", "expected false with overlap_p2p; got true"
    if pipe.warmup_flush and not pipe_of(s).overlap:
        yield "pipeline.warmup_flush", "expected overlap_p2p with it; got false"


def _split(training: Training) -> Iterator[tuple[str, str]]:
    """Ways to deal out layers that exclude each other."""
    pipe = training.pipeline
    ends = {"first_stage_layers": pipe.first_stage_layers is not None, "last_stage_layers": pipe.last_stage_layers is not None}
    pseudo = {"embedding_as_layer": pipe.embedding_as_layer, "loss_as_layer": pipe.loss_as_layer}
    given = [name for name, on in (ends | pseudo).items() if on]
    if pipe.layout and given:
        yield "pipeline.layout", f"expected it alone; got {', '.join(given)} too"
    for end, counted in (("first_stage_layers", "embedding_as_layer"), ("last_stage_layers", "loss_as_layer")):
        if ends[end] and pseudo[counted]:
            yield f"pipeline.{end}", f"expected it or {counted}; got both"


def _overlap(training: Training) -> Iterator[tuple[str, str]]:
    """Rules of overlapped expert exchanges."""
    how, par, dp = training.experts, training.parallel, training.data_parallel
    if how.delay_wgrad and not how.overlap:
        yield "experts.delay_wgrad", "expected experts.overlap with it; got false"
    if not how.overlap:
        return
    if not training.model.experts or par.ep == 1:
        yield "experts.overlap", "expected a model with experts and ep > 1; got none"
    if how.dispatcher == "allgather":
        yield "experts.overlap", "expected dispatcher alltoall or flex; got allgather"
    if how.shared_overlap:
        yield "experts.shared_overlap", "expected false with experts.overlap; got true"
    if training.model.mtp_layers > 1:
        yield "experts.overlap", f"expected at most one multi-token module with it; got {training.model.mtp_layers}"
    alone = par.vpp == 1 and not training.pipeline.layers_per_virtual_stage and training.pipeline.schedule != "dualpipe"
    if par.pp > 1 and alone:
        yield "experts.overlap", "expected pp = 1 or interleaving (vpp > 1); got neither"
    if training.recompute.granularity == "full":
        yield "experts.overlap", "expected recompute.granularity none or selective; got full"
    if dp.stage in ("gradients", "full"):
        yield "experts.overlap", f"expected data_parallel.sharding none or optimizer; got {dp.sharding}"


def _virtual(training: Training, s: Shape) -> Iterator[tuple[str, str]]:
    pipe, lay = training.pipeline, s.lay
    if lay.vpp > 1 and pipe.schedule not in ("auto", "interleaved") and not pipe.schedule.endswith(".py"):
        yield "pipeline.schedule", f"expected interleaved with vpp = {lay.vpp}; got {pipe.schedule}"
    if lay.vpp == 1:
        if pipe.overlap_p2p and pipe.schedule in ("auto", "1f1b", "one_f_one_b"):
            yield "pipeline.overlap_p2p", "expected false without interleaving (Megatron turns it off); got true"
        return
    group, m = pipe.group_size or lay.pp, lay.microbatches
    if lay.pp == 1:
        yield "parallel.vpp", f"expected 1 with pp = 1: there is nothing to interleave; got {lay.vpp}"
    elif pipe.overlap_p2p is False and lay.pp == 2:
        yield "pipeline.overlap_p2p", "expected true with interleaving on 2 stages; got false"
    if not lay.pp <= group <= m:
        yield "pipeline.group_size", f"expected pp = {lay.pp} to {m} microbatches; got {group}"
    elif m % group and m % group < lay.pp:
        yield (
            "pipeline.group_size",
            f"expected the {m} microbatches to leave none or at least pp = {lay.pp} over; got {m % group} over {group}",
        )
