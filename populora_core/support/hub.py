"""The hub of models and data sets: bases come from it at a pinned revision, folders with their card go to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from populora_core.support.errors import BaseModelError, HubError, first_line
from populora_core.support.typed import shown

HUB = "hub:"
"""Prefix of a base model's path `hub:NAME@REVISION`, the revision a commit."""
NAME_ON_A_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
WEIGHTS = "*.safetensors"
MODEL_FILES = ["*.json", WEIGHTS, "*.model", "*.txt", "*.jinja", "README.md"]
Kind = Literal["model", "dataset"]


def pinned(name: str, weights: bool = True) -> str:
    """`hub:NAME@REVISION` of a model of the hub, once its files are in the hub's cache on this machine.

    Args:
        name: `OWNER/NAME`, and where you like `@REVISION`: a branch, a tag or a commit.
        weights: fetch them too; a plan does without.

    Raises:
        BaseModelError: it is not there, and cannot be fetched.
    """
    from huggingface_hub import snapshot_download

    model, _, revision = name.partition("@")
    files = [pattern for pattern in MODEL_FILES if weights or pattern != WEIGHTS]
    try:
        folder = snapshot_download(model, revision=revision or None, allow_patterns=files)
    except Exception as error:  # of the network, the hub, or the library: it has dozens
        raise BaseModelError(
            f"the base {name} is neither a folder nor in the hub's cache, and could not be fetched",
            expected="a transformers checkpoint folder, a bundled base (tiny, frontier), or a name of the hub",
            got=f"{type(error).__name__}: {first_line(error)}",
            fix=how_to_get(model, revision),
        ) from error
    return f"{HUB}{model}@{Path(folder).name}"


def cached_folder(path: str) -> Path:
    """The folder in the hub's cache that holds the model of a pinned path; it need not exist."""
    from huggingface_hub import constants

    model, _, revision = path.removeprefix(HUB).partition("@")
    return Path(constants.HF_HUB_CACHE, f"models--{model.replace('/', '--')}", "snapshots", revision)


def how_to_get(model: str, revision: str = "") -> str:
    """The command that downloads a model, here or on a machine with a network."""
    at = f" --revision {revision}" if revision else ""
    return (
        f"hf download {model}{at}; without a network: hf download {model}{at} --local-dir FOLDER on another machine, "
        "copy FOLDER (config.json, *.safetensors, the tokenizer's files) and give it as --base"
    )


def push(folder: Path, repository: str, kind: Kind, private: bool = True) -> str:
    """Upload a folder as one commit, making the repository where there is none.

    Args:
        repository: `NAME` of the account that is logged in, or `OWNER/NAME`.

    Returns:
        The address of the commit.

    Raises:
        HubError: no account, no right, no network, or the hub refuses the folder; the folder stays as it is.
    """
    from huggingface_hub import HfApi

    try:
        hub = HfApi()
        made = hub.create_repo(repository, repo_type=kind, private=private, exist_ok=True)
        done = hub.upload_folder(
            folder_path=folder, repo_id=made.repo_id, repo_type=kind, commit_message="Upload from PopuLoRA"
        )
    except Exception as error:  # of the network, the hub, or the library: it has dozens
        of_kind = "" if kind == "model" else f" --repo-type {kind}"
        expected, first = "an account that may write there: `hf auth login`, or HF_TOKEN", "log in"
        told = first_line(error)
        if _refused(error):
            expected, first = "a name and a card that the hub accepts", "change the name or the card"
            told = " ".join(str(error).split())
        raise HubError(
            f"{folder} could not be pushed to {repository}",
            expected=expected,
            got=f"{type(error).__name__}: {told}",
            fix=f"{first}, then hf upload {repository} {shown(folder)}{of_kind}{' --private' * private}; the folder is "
            "whole and stays",
        ) from error
    return str(done.commit_url)


def _refused(error: Exception) -> bool:
    """True if the hub, or its library, refused what was sent, whoever sent it."""
    from huggingface_hub.errors import HFValidationError

    status = getattr(getattr(error, "response", None), "status_code", None)
    return type(error) is ValueError or isinstance(error, HFValidationError) or status == 400
