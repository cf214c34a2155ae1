"""Speed and memory, measured: each module is a suite with `scenarios() -> dict[str, dict]`, run by `python -m netsim bench SUITE`."""
