"""The `populora` command in this process, as a person would type it: what it says, and its exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess

import pytest

from populora_core.commands import app
from populora_core.terminal.screen import console


def populora(*arguments: object, stdin: str = "", **environment: str) -> CompletedProcess[str]:
    """Run the command; an exception that it would show as a traceback is raised."""
    words = ["populora", *map(str, arguments)]
    said, told = _pipe(), _pipe()
    code: object = 0
    umask = os.umask(0o022)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(told):
        patch.setattr(sys, "argv", words)
        patch.setattr(sys, "stdin", _pipe(stdin))
        patch.setattr(signal, "signal", lambda number, handler: None)  # what it sets is set for its process
        environment = {"COLUMNS": "160"} | environment
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(console, "width", int(environment["COLUMNS"]))  # it was read when the console was made
        try:
            app.main()
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            os.umask(umask)
    assert isinstance(code, int), code
    return CompletedProcess(words, code, _text(said), _text(told))


def _pipe(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8", write_through=True)


def _text(pipe: io.TextIOWrapper) -> str:
    assert isinstance(pipe.buffer, io.BytesIO)
    return pipe.buffer.getvalue().decode()
