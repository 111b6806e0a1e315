"""`python -m tests.cpu.conformance --record FILE`: on a machine with a GPU, what it gives for every form."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from tests.cpu.conformance import device, golden
from tests.cpu.conformance.form import Form
from tests.cpu.conformance.tables import forms


def about() -> dict[str, Any]:
    """Which device, driver and compiler the golden data come from."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "device": properties["name"].decode(),
        "capability": f"{properties['major']}.{properties['minor']}",
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cpu.conformance", description=__doc__)
    parser.add_argument("--record", type=Path, metavar="FILE", help="run every form and write the golden data")
    arguments = parser.parse_args()
    if arguments.record:
        refused: list[Form] = []
        results = dict(device.run(forms(), refused))
        golden.save(arguments.record, about(), results)
        print(f"{len(results)} forms recorded in {arguments.record}, {len(refused)} refused by the compiler")
        for form in refused:
            print(f"  refused: {form.name}")


if __name__ == "__main__":
    main()
