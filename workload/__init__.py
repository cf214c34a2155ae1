"""What the GPUs do: model cards, parallel layouts and schedules become programs of compute and communication."""

from workload.api import Workload, build, kernels, tally
from workload.cards import load_model
from workload.check import check

__all__ = ["Workload", "build", "check", "kernels", "load_model", "tally"]
