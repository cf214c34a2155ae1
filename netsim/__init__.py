"""netsim: a packet- and flow-level network co-simulator for LLM training clusters."""

__version__ = "0.1.0"
