"""Collectives as NCCL runs them: which algorithm on which channels, and the messages that move between which GPUs and NICs."""

from netsim.collectives.plan import plan
from netsim.collectives.platform import Communicator, Platform, platform_of
from netsim.collectives.timing import idle_us
from netsim.collectives.tuner import Choice, choose

__all__ = ["Choice", "Communicator", "Platform", "choose", "idle_us", "plan", "platform_of"]
