"""Counters of the endpoint, in the text format that Prometheus reads."""

from __future__ import annotations

from collections import Counter

from populora_core.sampler.requests import Completion, Request

HELP = {
    "requests_total": ("counter", "HTTP requests by path and status"),
    "completions_total": ("counter", "completions sampled, by member"),
    "prompt_tokens_total": ("counter", "tokens of their prompts"),
    "completion_tokens_total": ("counter", "tokens drawn"),
    "batches_total": ("counter", "batches sampled"),
    "abandoned_total": ("counter", "completions given up before they were whole"),
    "waiting": ("gauge", "completions that wait"),
}
BARE = "base"


class Metrics:
    """Counters and gauges of one endpoint."""

    def __init__(self) -> None:
        self._values: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def add(self, name: str, count: int = 1, **labels: str) -> None:
        self._values[name, tuple(labels.items())] += count

    def set(self, name: str, value: int) -> None:
        self._values[name, ()] = value

    def completed(self, request: Request, completion: Completion) -> None:
        """Count a completion with its tokens."""
        member = request.member_id or BARE
        self.add("completions_total", member=member)
        self.add("prompt_tokens_total", len(request.prompt_ids), member=member)
        self.add("completion_tokens_total", len(completion.token_ids), member=member)

    def text(self) -> str:
        """All of them; values are member ids, paths and numbers, in which nothing needs to be escaped."""
        lines = []
        for name, (kind, meaning) in HELP.items():
            lines += [f"# HELP populora_{name} {meaning}", f"# TYPE populora_{name} {kind}"]
            for (own, labels), value in sorted(self._values.items()):
                if own == name:
                    shown = ",".join(f'{label}="{text}"' for label, text in labels)
                    lines.append(
                        f"populora_{name}{{{shown}}} {value}" if shown else f"populora_{name} {value}"
                    )
        return "\n".join([*lines, ""])
