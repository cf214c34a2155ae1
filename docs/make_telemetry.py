"""Make the pictures of docs/telemetry.md: python docs/make_telemetry.py [FOLDER OF A FLOW RUN [FOLDER OF A PACKET RUN]]

Simulates runs/h100_1024.yaml at 100 us on the flow engine, and packet by packet with a layer per stage and four microbatches, unless it is
given runs: the whole file takes the packet engine minutes, and the figures show the same. The picture of the HTML page needs Chromium.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import netsim
from netsim.report import figures
from netsim.report.html import write_page

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "telemetry"
FLOW = ("network.engine=flow", "telemetry.interval=100 us")
PACKET = ("network.engine=packet", "telemetry.interval=100 us", "workload.model.layers=8", "workload.global_batch=64")


def main() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as scratch:
        given = [Path(word) for word in sys.argv[1:]]
        flow = given[0] if given else simulated(Path(scratch, "flow"), FLOW)
        packet = given[1] if len(given) > 1 else simulated(Path(scratch, "packet"), PACKET)
        with netsim.open_run(flow) as run:
            figures.save_all(run, PICTURES)
            write_page(run, Path(scratch, "run.html"))
        with netsim.open_run(packet) as run:
            for name in ("utilisation", "completion"):
                figures.save(run, name, PICTURES / f"packet_{name}.png")
        photograph(Path(scratch, "run.html"), Path(scratch, "profile"))


def simulated(folder: Path, settings: tuple[str, ...]) -> Path:
    """Run the file with some settings into a folder."""
    words = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "netsim", "run", "runs/h100_1024.yaml", *words, "--out", str(folder), "--quiet"]
    subprocess.run(command, check=True, cwd=ROOT)
    return folder


def photograph(page: Path, profile: Path) -> None:
    """Take the upper part of the page as a browser shows it."""
    sys.path.insert(0, str(ROOT))
    from tests import browser

    if browser.CHROMIUM is None:
        print("no Chromium: page.png is left as it is", file=sys.stderr)
        return
    with browser.page(profile) as shown:
        shown.call("Emulation.setDeviceMetricsOverride", width=1300, height=1400, deviceScaleFactor=1, mobile=False)
        shown.open(page)
        shown.picture(PICTURES / "page.png")


if __name__ == "__main__":
    main()
