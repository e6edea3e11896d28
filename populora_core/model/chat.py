"""Chat templates: programs that came with a base, rendered in a process of ours that always ends.

Two loops in each other, or one multiplication, can take for ever or all memory, and nothing within a process stops C
code. So templates are rendered in another one, which a CPU timer of the kernel ends: a busy machine changes no result.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from populora_core.support.errors import BaseModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CPU_SECONDS = 10.0
MEMORY_BYTES = 1 << 30
MOST_CHARS = 10_000_000
"""Longest text that a template may give."""
DATE = datetime(2024, 7, 26)
"""The day that a template is told, that of Llama 3's where it is told none: today's prompt would change tomorrow."""


class SpecialTokens(Protocol):
    """The part of a transformers tokenizer that says which tokens are special."""

    all_special_tokens: list[str]
    all_special_ids: list[int]


def special_tokens(tokenizer: SpecialTokens) -> dict[int, str]:
    """Token id -> text: of those that have a name, and of those that are only marked, as most of Llama 3's are."""
    named = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=False))
    added = getattr(tokenizer, "added_tokens_decoder", None)  # not every tokenizer has it
    marked = (
        {key: str(token) for key, token in added.items() if token.special}
        if isinstance(added, Mapping)
        else {}
    )
    return named | marked


class TemplateBeyondBounds(BaseModelError):
    """A chat template that takes more time, memory or text than any prompt needs."""


class BoundedTemplate:
    """A bounded replacement for a tokenizer's `apply_chat_template`.

    The process starts with the first text, and ends with the tokenizer or with this process.

    Args:
        folder: of the base; errors name it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
        self._tokenizer = tokenizer
        self._folder = folder
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, conversation: list[dict[str, str]], *, tokenize: bool = False, **more: Any) -> Any:
        """Render a conversation.

        Args:
            more: what transformers passes to the template, such as `add_generation_prompt`.

        Raises:
            TemplateBeyondBounds: it would take too much.
            BaseModelError: the template fails.
        """
        asked = {
            **self._tokenizer.special_tokens_map,
            **more,
            "conversations": [conversation],
            "chat_template": self._tokenizer.get_chat_template(),
        }
        with self._lock:
            text = self._text(self._answer(asked))
        return self._tokenizer(text, add_special_tokens=False) if tokenize else text

    def _answer(self, asked: dict[str, Any]) -> dict[str, str]:
        """The process's answer; none if it came to its end over it, so that the next text has a new one."""
        process = self._process = self._process or self._started()
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if line.endswith(b"\n"):
            found: dict[str, str] = json.loads(line)
            return found
        process.wait()
        self._process = None
        over = process.returncode == -signal.SIGPROF
        return {"beyond": f"more than {CPU_SECONDS:g} CPU seconds" if over else f"exit {process.returncode}"}

    def _text(self, answer: dict[str, str]) -> str:
        if "text" in answer:
            return answer["text"]
        kind, what = (
            (TemplateBeyondBounds, "takes too much") if "beyond" in answer else (BaseModelError, "fails")
        )
        raise kind(
            f"the chat template of the base model in {self._folder} {what}",
            expected=f"a prompt of at most {MOST_CHARS:,} characters, within {CPU_SECONDS:g} CPU seconds and "
            f"{MEMORY_BYTES >> 30} GiB",
            got=answer.get("beyond") or answer["error"],
            fix="read chat_template.jinja or chat_template in tokenizer_config.json, and repair it or choose another "
            "base: a template is a program of whoever made the base",
        )

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(CPU_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        weakref.finalize(self, _end, process)
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _rendered(asked: dict[str, Any]) -> dict[str, str]:
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        (text,), _ = render_jinja_template(**asked, strftime_now=DATE.strftime)
    except MemoryError:
        return {"beyond": f"more than {MEMORY_BYTES >> 30} GiB"}
    except (
        TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        return {"error": str(error) or type(error).__name__}
    return {"text": text} if len(text) <= MOST_CHARS else {"beyond": f"{len(text):,} characters"}


def main() -> None:
    """Answer each line of standard input, a JSON object, with a line; for `BoundedTemplate`."""
    _rendered({"conversations": [[]], "chat_template": ""})  # imports
    pages = int(Path("/proc/self/statm").read_text().split()[0])  # imports may hold more than a template gets
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, inside C code too
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))
        answer = _rendered(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
