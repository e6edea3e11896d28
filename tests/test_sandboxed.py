"""A test is skipped for what the machine lacks, never for what our code breaks."""

from __future__ import annotations

from types import ModuleType

import pytest
from sandboxed import opened, possible

from populora_core.sandbox import bubblewrap, launcher
from populora_core.sandbox.backends import SandboxKind
from populora_core.support.errors import SandboxUnavailable

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize(("kind", "module"), [("bubblewrap", bubblewrap), ("launcher", launcher)])
def test_a_broken_command_of_ours_is_no_reason_to_skip(
    kind: SandboxKind, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not possible(kind):
        pytest.skip(f"this machine cannot have {kind}")
    command = module.command
    monkeypatch.setattr(module, "command", lambda contents: [*command(contents)[:1], "--no-such-option"])
    with pytest.raises((SandboxUnavailable, pytest.skip.Exception)) as caught:
        opened(kind)
    assert caught.type is SandboxUnavailable
