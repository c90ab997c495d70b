"""Take the README's picture of a sweep's dashboard: screenshot.py SWEEP FILE.png [hash of the view].

Fails where the page reports an error, or where the picture is over 300 KB.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

from chromium import chromium, missing, open_page, resize

from lnexp.errors import UserError
from lnexp.paired import Tester
from lnexp.report import dashboard

WIDTH, HEIGHT, MOST = 1280, 1000, 300_000


def main(sweep: str, target: str, view: str = "") -> str | None:
    """Write the picture; give what is wrong in one line, or None."""
    if problem := missing():
        return problem
    try:
        page = dashboard.write(sweep, paired=Tester())
    except UserError as error:
        return str(error)
    with chromium(WIDTH, HEIGHT) as driver:
        resize(driver, WIDTH, HEIGHT)
        open_page(driver, page, view)
        shot = base64.b64decode(driver.get_screenshot_as_base64())
        faults = [entry["message"] for entry in driver.get_log("browser")]
    if faults:
        return f"{page}: the browser says {faults[0]}"
    if len(shot) > MOST:
        return f"{target}: {len(shot):,} bytes, need at most {MOST:,}"
    file = Path(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(shot)
    print(f"{file}: {len(shot):,} bytes")
    return None


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit("screenshot.py SWEEP FILE.png [VIEW]")
    sys.exit(main(*sys.argv[1:]))
