"""Channels from a file: NCCL_GRAPH_FILE, in NCCL's XML (what NCCL_GRAPH_DUMP_FILE writes) or the same content in JSON.

    <graphs version="1">
      <graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="24" speedinter="24" typeintra="NVL" typeinter="PIX">
        <channel> <net dev="0"/> <gpu dev="0"/> <gpu dev="1"/> <net dev="0"/> </channel>
      </graph>
    </graphs>

In JSON: `{"graphs": [{"id": 0, "pattern": 4, ..., "channels": [{"nets": [0, 0], "gpus": [0, 1]}]}]}`. Graph 0 is the ring, 1 the tree, 3
NVLS; others are read over. GPUs are numbered within the node and NICs within the NICs near its members, both in ascending order.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from netsim.collectives.graphs import Channel, Graph, Graphs
from netsim.errors import InputError, did_you_mean

PATTERNS = {1: "balanced_tree", 2: "balanced_tree", 3: "tree", 4: "ring", 5: "nvls", 6: "nvls"}
TYPES = {"LOC": 0, "NVL": 1, "NVB": 2, "C2C": 3, "PIX": 4, "PXB": 5, "P2C": 6, "PXN": 7, "PHB": 8, "SYS": 9, "NET": 10}
RING, TREE, NVLS = 0, 1, 3


@lru_cache(maxsize=16)
def read(path: str) -> Graphs:
    """Read a graph file; InputError where it is missing or says what cannot be."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        found = _from_json(json.loads(text)) if text.lstrip().startswith("{") else _from_xml(ElementTree.fromstring(text))
    except OSError as error:
        raise InputError(f"{path}: nccl.NCCL_GRAPH_FILE: expected a file that can be read; got {error.strerror}") from None
    except (ElementTree.ParseError, ValueError) as error:  # no JSON, no text, or a path that holds a null byte
        raise InputError(f"{path}: expected NCCL's graphs in XML or JSON; got {error}") from None
    try:
        graphs = {int(entry["id"]): _graph(entry) for entry in found}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: expected graphs with id, pattern, speedintra, speedinter, types and channels; got {error}") from None
    if RING not in graphs:
        raise InputError(f"{path}: expected a graph with id 0, the ring; got ids {sorted(graphs)}")
    ring = graphs[RING]
    return Graphs(ring, graphs.get(TREE) or ring._replace(pattern="balanced_tree"), graphs.get(NVLS))


def _from_json(data: dict[str, Any]) -> list[dict[str, Any]]:
    return list(data["graphs"])


def _from_xml(root: ElementTree.Element) -> list[dict[str, Any]]:
    out = []
    for graph in root.iter("graph"):
        channels = [
            {
                "nets": [int(net.get("dev", "-1"), 0) for net in channel.iter("net")],
                "gpus": [int(gpu.get("dev", "-1"), 0) for gpu in channel.iter("gpu")],
            }
            for channel in graph.iter("channel")
        ]
        out.append({**graph.attrib, "channels": channels})
    return out


def _graph(entry: dict[str, Any]) -> Graph:
    gpus = sorted({gpu for channel in entry["channels"] for gpu in channel["gpus"]})
    nets = sorted({net for channel in entry["channels"] for net in channel["nets"]})
    place, rail = {gpu: i for i, gpu in enumerate(gpus)}, {net: i for i, net in enumerate(nets)}
    channels = []
    for channel in entry["channels"]:
        ends = [rail[net] for net in channel["nets"]] or [-1]
        channels.append(Channel(ends[0], tuple(place[gpu] for gpu in channel["gpus"]), ends[-1]))
    if not channels:
        raise ValueError(f"graph {entry['id']} without channels")
    return Graph(
        tuple(channels), float(entry["speedintra"]), float(entry["speedinter"]), _type(entry["typeintra"]), _type(entry["typeinter"]),
        int(entry.get("crossnic", 0)), PATTERNS.get(int(entry["pattern"]), "ring"),
    )  # fmt: skip


def _type(name: str | int) -> int:
    if str(name).isdigit():
        return int(name)
    if str(name) not in TYPES:
        raise ValueError(f"path type '{name}'{did_you_mean(str(name), TYPES)}")
    return TYPES[str(name)]
