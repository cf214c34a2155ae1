"""What cannot work is refused before the run starts, in one line that names the field and the place."""

from dataclasses import replace

import pytest

from netsim.config.network import CongestionControl, Ecn, Network, Pfc
from netsim.config.topology import Fault, Link, Switch
from netsim.errors import InputError
from netsim.network.packet.parameters import parameters
from tests.packet_cases import MIB, PLAIN, engine, flows, tree


def refused(fabric, network, traffic=None) -> str:
    with pytest.raises(InputError) as caught:
        made = engine(fabric, network, traffic)
        made.finish()
    assert len(caught.value.lines) == 1
    return caught.value.lines[0]


def test_buffer_below_a_packet():
    line = refused(tree(switch=Switch(radix=8, latency=300_000, buffer=20_000)), PLAIN)
    assert line == "topology.switch.buffer: expected room for a packet of 4160 B at every port; got 2500 B per port at leaf 0"


def test_thresholds_beyond_the_buffer():
    line = refused(tree(switch=Switch(radix=8, latency=300_000, buffer=MIB)), replace(PLAIN, pfc=Pfc(xoff=200_000)))
    assert line.startswith(
        "network.pfc: expected xoff of at least a packet (4160 B) and xoff + headroom of at most the 131072 B of buffer per port"
    )


def test_xon_above_xoff():
    assert dict(Pfc(xoff=10_000, xon=20_000).problems()) == {"xon": "expected at most xoff (10000 B); got 20000 B"}
    assert refused(tree(), replace(PLAIN, pfc=Pfc(xon=2 * MIB))).startswith("network.pfc.xon: expected at most xoff (")


def test_a_link_without_latency_leaves_no_window():
    line = refused(tree(link=Link(rate=50e9, latency=0), switch=Switch(radix=8, latency=300_000)), PLAIN)
    assert line.startswith("topology: expected a latency above 0 on every link") and "got 0 ps on leaf" in line


def test_unreachable_after_failures():
    place = tree(faults=(Fault("nic n5.0 -> leaf 1"),))
    assert "got none" in refused(place, PLAIN, flows((0, 5, MIB)))


def test_too_little_headroom_is_reported_with_port_and_time():
    line = refused(tree(), replace(PLAIN, pfc=Pfc(xoff=40_000, headroom=4_160)), flows(*((i, 0, MIB) for i in range(4, 12))))
    assert line.startswith("network.pfc.headroom: expected enough for what is on the way when a sender is paused; got 4160 B, which ")
    assert " us" in line and "->" in line


def test_headrooms_beyond_a_shared_buffer():
    place = tree(switch=Switch(radix=8, latency=300_000, buffer=MIB))
    line = refused(place, replace(PLAIN, sharing="dynamic", pfc=Pfc(headroom=150_000)))
    assert line == (
        "network.pfc.headroom: expected a packet (4160 B) and the headroom of every port in the 1048576 B of buffer of leaf 0; "
        "got 8 ports with 1200000 B of headroom"
    )


def test_credits_below_a_packet():
    line = refused(tree(), replace(PLAIN, flow_control="credits", credits=1000))
    assert line == "network.credits: expected at least a packet of 4160 B; got 1000 B"


def test_unknown_congestion_control_and_parameter():
    with pytest.raises(InputError, match="did you mean 'dcqcn'"):
        parameters(CongestionControl("dcqnc"))


@pytest.mark.parametrize(
    ("name", "parameter", "value", "said"),
    [
        ("dcqcn", "g", float("nan"), "expected a number above 0 and at most 1; got nan"),
        ("dcqcn", "g", -1, "expected a number above 0 and at most 1; got -1"),
        ("hpcc", "eta", 1.5, "expected a number above 0 and at most 1; got 1.5"),
        ("swift", "beta", "strong", "expected a number above 0; got 'strong'"),
        ("swift", "max_cwnd", float("inf"), "expected a number above 0; got inf"),
        ("dcqcn", "rate_ai", "1e400 Gbps", "expected a finite rate; got '1e400 Gbps'"),
        ("dcqcn", "byte_counter", "1e400 MB", "expected a finite size; got '1e400 MB'"),
    ],
)
def test_parameters_that_nothing_can_be_computed_with_are_refused(name, parameter, value, said):
    with pytest.raises(InputError) as caught:
        parameters(CongestionControl(name, parameters={parameter: value}))
    assert str(caught.value) == f"network.congestion_control.parameters.{parameter}: {said}"


def test_a_parameter_of_a_control_without_any_is_refused():
    with pytest.raises(InputError, match=r"parameters: expected none, which 'none' does not have; got the key 'g'"):
        parameters(CongestionControl("none", parameters={"g": 1}))
    with pytest.raises(InputError, match="did you mean 'rate_ai'"):
        parameters(CongestionControl("dcqcn", {"rate_a": "1 Gbps"}))
    with pytest.raises(InputError, match="rate_ai: expected a rate such as"):
        parameters(CongestionControl("dcqcn", {"rate_ai": "fast"}))


def test_fields_that_contradict_each_other():
    assert [name for name, _ in Ecn(kmin=2, kmax=1).problems()] == ["kmin"]
    assert [name for name, _ in Network(sharing="dynamic", flow_control="credits").problems()] == ["sharing"]
    assert [name for name, _ in Network(sharing="dynamic", pfc=Pfc(xoff=10_000, xon=1)).problems()] == ["pfc.xoff", "pfc.xon"]
    assert [name for name, _ in Network(pfc=Pfc(xon_offset=10_000)).problems()] == ["pfc.xon_offset"]
    assert [name for name, _ in Network(window=0).problems()] == ["window"]
    assert [name for name, _ in Network(flow_control="none", spreading="spray").problems()] == ["spreading"]
