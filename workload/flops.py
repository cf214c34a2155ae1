"""Model FLOPs of an iteration, the numerator of MFU: what the mathematics needs, not what recomputation adds.

Per token 6 x the weights that it meets in matrix products (2 forward, 4 backward), and per layer attention 6 a (d_qk + d_v) s / 2:
causal, counted once forward and twice backward. Source: Narayanan et al., arXiv 2104.04473, with the causal half as in Megatron-Core.
"""

from netsim.config.model import Model
from netsim.config.workload import Training
from workload.ops import limited


def attention_weights(m: Model) -> int:
    """Weights of the projections of one attention layer."""
    if m.attention == "mla":
        query = m.hidden * m.q_rank + m.q_rank * m.heads * m.dim if m.q_rank else m.hidden * m.heads * m.dim
        keys = m.hidden * (m.kv_rank + m.rope_dim) + m.kv_rank * m.heads * (m.nope_dim + m.v_dim)
        return query + keys + m.heads * m.v_dim * m.hidden
    return m.hidden * (m.heads + 2 * m.groups) * m.dim + m.heads * m.dim * m.hidden


def mlp_weights(m: Model, layer: int) -> int:
    """Weights of the MLP that one token meets in a layer."""
    up = 3 if m.gated else 2
    if m.is_moe(layer):
        return m.hidden * m.experts + up * m.hidden * (m.expert_ffn * m.top_k + m.shared_ffn)
    return up * m.hidden * m.ffn


def attention_span(m: Model, layer: int, sequence: int) -> float:
    """Average number of keys that a query sees."""
    window = limited(m, layer)
    if not window or window >= sequence:
        return sequence / 2
    return window - window * window / (2 * sequence)


def flops_per_token(m: Model, sequence: int) -> float:
    """FLOPs of one token, forward and backward."""
    total = 6.0 * m.vocab * m.hidden * (1 + m.mtp_layers) + 6.0 * 2 * m.hidden * m.hidden * m.mtp_layers
    for layer in range(m.layers + m.mtp_layers):
        total += 6.0 * (attention_weights(m) + mlp_weights(m, layer))
        total += 6.0 * m.heads * (m.dim + m.dim_v) * attention_span(m, layer, sequence)
    return total


def flops_per_step(training: Training) -> float:
    """FLOPs of an iteration over all GPUs."""
    return flops_per_token(training.model, training.sequence) * training.global_batch * training.sequence


def parameters(m: Model) -> int:
    """Parameters of the model, biases and norms left out."""
    up = 3 if m.gated else 2
    total = m.vocab * m.hidden * (1 if m.tied else 2)
    for layer in range(m.layers):
        experts = m.hidden * m.experts + up * m.hidden * (m.expert_ffn * m.experts + m.shared_ffn)
        total += attention_weights(m) + (experts if m.is_moe(layer) else up * m.hidden * m.ffn)
    return total
