"""Make the pictures of docs/telemetry.md: python docs/make_telemetry.py [FOLDER OF A RUN]

Simulates runs/h100_1024.yaml at 100 us unless it is given a run. The picture of the HTML page needs Chromium.
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


def main() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch, "run")
        if len(sys.argv) == 1:
            words = ["run", "runs/h100_1024.yaml", "--set", "telemetry.interval=100 us", "--out", str(folder), "--quiet"]
            subprocess.run([sys.executable, "-m", "netsim", *words], check=True, cwd=ROOT)
        with netsim.open_run(folder) as run:
            figures.save_all(run, PICTURES)
            write_page(run, Path(scratch, "run.html"))
        photograph(Path(scratch, "run.html"), Path(scratch, "profile"))


def photograph(page: Path, profile: Path) -> None:
    """Take the upper part of the page as a browser shows it."""
    sys.path.insert(0, str(ROOT))
    from tests import browser

    if browser.CHROMIUM is None:
        print("no Chromium: page.png is left as it is", file=sys.stderr)
        return
    with browser.page(profile) as shown:
        shown.call("Emulation.setDeviceMetricsOverride", width=1300, height=1180, deviceScaleFactor=1, mobile=False)
        shown.open(page)
        shown.picture(PICTURES / "page.png")


if __name__ == "__main__":
    main()
