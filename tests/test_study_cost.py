"""What a cluster costs, against counts made by hand."""

import pytest

from netsim.config import from_data
from netsim.errors import InputError
from netsim.study.cost import at_rate, cost, prices


def _run(topology, arch="h100"):
    workload = {"kind": "training", "model": {"use": "llama2_7b"}, "sequence": 1024, "global_batch": 1024}
    return from_data({"name": "x", "topology": topology, "workload": workload, "compute": {"device": {"use": arch}}})


def test_dgx_h100_by_hand():
    """128 nodes: 1,024 NICs, 1,024 links to leaves and 1,024 to spines; a leaf link takes one switch port, a spine link two."""
    p = prices({})
    bill = cost(_run({"use": "dgx_h100"}))
    network = 1024 * p["nic_400"] + 2048 * p["link_400"] + 3072 * p["switch_port_400"]
    watts = 1024 * p["watts_nic_400"] + 2048 * p["watts_link_400"] + 3072 * p["watts_switch_port_400"]
    assert bill.network_usd == pytest.approx(network, rel=1e-12)
    assert bill.usd == pytest.approx(network + 1024 * p["gpu_hopper"], rel=1e-12)
    assert bill.watts == pytest.approx(watts + 1024 * p["watts_gpu_hopper"], rel=1e-12)
    hourly = bill.usd / (p["years"] * 8760) + bill.watts / 1000 * p["load"] * p["pue"] * p["usd_per_kwh"]
    assert bill.usd_per_hour == pytest.approx(hourly, rel=1e-12)


def test_rail_only_saves_the_spines_and_failures_save_nothing():
    p = prices({})
    full, flat = cost(_run({"use": "dgx_h100"})), cost(_run({"use": "rail_only"}))
    assert full.network_usd - flat.network_usd == pytest.approx(1024 * (p["link_400"] + 2 * p["switch_port_400"]))
    broken = cost(_run({"use": "dgx_h100", "faults": [{"link": "leaf r0.s0 -> spine r0.0"}]}))
    assert broken == full


def test_two_ports_of_200_are_a_nic_of_400():
    p = prices({})
    dual = cost(_run({"use": "dual_plane", "nodes": 16}))
    assert dual.network_usd > 128 * p["nic_400"] + 256 * p["link_200"]
    free = cost(_run({"use": "dual_plane", "nodes": 16}), {"nic_400": 0.0})
    assert free.network_usd == pytest.approx(dual.network_usd - 128 * p["nic_400"])


def test_rates_between_are_interpolated_and_beyond_in_proportion():
    table = {"nic_100": 100.0, "nic_400": 400.0, "nic_fast": 7.0}
    assert at_rate(table, "nic", 25e9) == pytest.approx(200)
    assert at_rate(table, "nic", 200e9) == pytest.approx(1600)
    assert at_rate(table, "nic", 1.25e9) == pytest.approx(10)


def test_unknown_prices_and_generations_are_refused():
    with pytest.raises(InputError, match=r"prices.nic_40: expected the name of a price; got 'nic_40'; did you mean 'nic_400'"):
        prices({"nic_40": 1.0})
    run = _run({"use": "dgx_h100"})
    object.__setattr__(run.compute.device, "arch", "rubin")
    with pytest.raises(InputError, match="expected a generation with a price"):
        cost(run)
