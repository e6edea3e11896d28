"""What pip-audit found on the packages of an environment, in a few sentences: `make advisories`.

    python tests/advisories.py PIP_AUDIT SITE_PACKAGES

Exits with 1 where a package is affected, and where one could not be looked up: what no one asked about is not known to
be well. A build of one's own, such as torch's for CPUs, is in no database; it is named, and decides nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

OPTIONS = ("--format", "json", "--progress-spinner", "off", "--skip-editable", "--path")
REMEDY = "run this where the public package index, whose database is asked, can be reached"
NAMED = 5


def summary(dependencies: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """What to say of pip-audit's entries, a line each, and whether all is well."""
    known = [each for each in dependencies if "editable" not in each.get("skip_reason", "")]
    unasked = [each for each in known if "skip_reason" in each]
    builds = [each["name"] for each in unasked if "+" in each["skip_reason"]]
    unknown = [each["name"] for each in unasked if each["name"] not in builds]
    affected = [(each, advisory) for each in known for advisory in each.get("vulns", ())]
    lines = [
        f"{each['name']} {each['version']}: {advisory['id']}, fixed in "
        f"{', '.join(advisory['fix_versions']) or 'no version yet'}"
        for each, advisory in affected
    ]
    if unknown:
        more = ", ..." if len(unknown) > NAMED else ""
        lines.append(
            f"{len(unknown)} of {len(known)} packages could not be looked up ({', '.join(unknown[:NAMED])}{more}), so "
            f"whether they are affected is not known; {REMEDY}"
        )
    well = bool(known) and not lines
    if builds:
        lines.append(f"builds that no database knows: {', '.join(builds)}")
    if well:
        lines.append(f"none of {len(known) - len(builds)} packages is affected by a known advisory")
    return lines, well


def main() -> None:
    pip_audit, packages = sys.argv[1:]
    done = subprocess.run([pip_audit, *OPTIONS, packages], capture_output=True, text=True)
    try:
        lines, well = summary(json.loads(done.stdout)["dependencies"])
    except ValueError:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        lines, well = [f"no advisory could be looked up; {REMEDY}. pip-audit said: {said[:300]}"], False
    print(*lines, sep="\n")
    sys.exit(not well)


if __name__ == "__main__":
    main()
