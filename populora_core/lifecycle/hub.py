"""A folder with its card goes to a hub: an adapter, a merged model, members with their rule, or a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from populora_core.support.errors import HubError, first_line

Kind = Literal["model", "dataset"]


def push(folder: Path, repository: str, kind: Kind, private: bool = True) -> str:
    """Upload a folder as one commit, making the repository where there is none.

    Args:
        repository: `NAME` of the account that is logged in, or `OWNER/NAME`.

    Returns:
        The address of the commit.

    Raises:
        HubError: no account, no right, or no network; the folder stays as it is.
    """
    from huggingface_hub import HfApi

    try:
        hub = HfApi()
        made = hub.create_repo(repository, repo_type=kind, private=private, exist_ok=True)
        done = hub.upload_folder(
            folder_path=folder, repo_id=made.repo_id, repo_type=kind, commit_message="Upload from PopuLoRA"
        )
    except Exception as error:  # of the network, the hub, or the library: it has dozens
        raise HubError(
            f"{folder} could not be pushed to {repository}",
            expected="an account that may write there: `hf auth login`, or HF_TOKEN",
            came=f"{type(error).__name__}: {first_line(error)}",
            remedy=f"log in and push again; {folder} is whole and stays",
        ) from error
    return str(done.commit_url)
