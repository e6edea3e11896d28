"""What `populora evaluate` says beside the scores."""

from __future__ import annotations

from populora_core.benchmarks.contamination import Contamination
from populora_core.commands.scores import contamination_line


def test_contamination_is_said_with_what_to_make_of_it() -> None:
    found = Contamination(items=360, overlapping=312, documents=90, mean_share=0.4, highest=1.0)
    bundled, public = contamination_line(found, bundled=True), contamination_line(found, bundled=False)
    assert bundled.startswith("contamination: 312 of 360 problems")
    assert "is never taken into a run" in bundled
    assert "before you trust their scores" in public
    none = Contamination(items=360, overlapping=0, documents=90, mean_share=0.0, highest=0.0)
    assert contamination_line(none, bundled=True).endswith("highest 0%")
