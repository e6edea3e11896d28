"""AWS settings that AWS' own tools read and obstore does not: profiles, and certificates of a private authority."""

from __future__ import annotations

import os
from configparser import ConfigParser, Error
from pathlib import Path

from populora_core.support.errors import StoreUnavailable

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_VARIABLES = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint_url": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
}


def profile() -> dict[str, str]:
    """Keys, region and endpoint of the profile AWS_PROFILE or `default`, as far as the environment names none.

    Raises:
        StoreUnavailable: AWS_PROFILE names one that has no keys of its own, or its files cannot be read.
    """
    name = os.environ.get("AWS_PROFILE", "default")
    stated = ConfigParser(interpolation=None)
    try:
        stated.read([_file("AWS_CONFIG_FILE", "config"), _file("AWS_SHARED_CREDENTIALS_FILE", "credentials")])
    except (OSError, Error, UnicodeDecodeError) as error:
        raise _unusable(
            name, f"its files cannot be read ({type(error).__name__})"
        ) from None  # it may quote keys
    sections = [stated[section] for section in (f"profile {name}", name) if section in stated]
    values = {option: value for section in sections for option, value in section.items()}
    if "AWS_ACCESS_KEY_ID" in os.environ:
        wanted: tuple[str, ...] = ()
    elif "AWS_PROFILE" in os.environ and not set(_KEYS[:2]) <= set(values):
        raise _unusable(name, "no keys of its own" if sections else "no such profile")
    else:
        wanted = _KEYS
    unsaid = (option for option, names in _VARIABLES.items() if not any(map(os.environ.get, names)))
    return {option: values[option] for option in (*wanted, *unsaid) if option in values}


def certificates() -> bytes | None:
    """The authorities that AWS_CA_BUNDLE names, to be trusted beside those of the system."""
    bundle = os.environ.get("AWS_CA_BUNDLE")
    try:
        return Path(bundle).read_bytes() if bundle else None
    except OSError as error:
        raise StoreUnavailable(
            "the certificates of the store's authority cannot be read",
            expected="a PEM file in AWS_CA_BUNDLE",
            got=str(error),
            fix="correct AWS_CA_BUNDLE, or unset it",
        ) from error


def _file(variable: str, name: str) -> Path:
    return Path(os.environ.get(variable) or f"~/.aws/{name}").expanduser()


def _unusable(name: str, came: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the AWS profile {name} gives no credentials",
        expected="aws_access_key_id and aws_secret_access_key in ~/.aws/credentials",
        got=came,
        fix="correct AWS_PROFILE; for a role or single sign-on put its keys into the environment: "
        f'eval "$(aws configure export-credentials --profile {name} --format env)"',
    )
