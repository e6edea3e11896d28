"""Failures of requests to S3-compatible storage: the cause, the fix, and whether it may pass."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TRANSIENT = (408, 409, 429)  # statuses below 500; 409: a conditional put beside another, to be tried again
_METADATA = "169.254.169.254"  # where a cloud tells its machines their credentials
_REGION = "incorrectly configured region"


@dataclass(frozen=True, slots=True)
class Trouble:
    """The cause of a failed request, read from the text of obstore's error: its classes distinguish less.

    Attributes:
        status: of HTTP; None where nothing was answered.
        code: the server's word for it, such as `NoSuchBucket`, else the transport's, such as `Timeout`.
        text: one line, without the body of the answer, which can repeat what was signed.
    """

    status: int | None
    code: str
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Trouble:
        said = str(error)
        status = re.search(r"status code: (\d{3})", said)
        code = re.search(r"<Code>(\w+)</Code>", said) or re.search(r"\bkind: (\w+)", said)
        text = re.split(r"\n|<", said, maxsplit=1)[0].rstrip(": ")
        return cls(
            status=int(status[1]) if status else None,
            code=code[1] if code else type(error).__name__,
            text=re.sub(r"//[^/\s@]*@", "//", text),
        )

    @property
    def no_login(self) -> bool:
        """True if there was nothing to sign with."""
        return _METADATA in self.text or re.search(r"Missing \w*(Key|Id)", self.text) is not None

    @property
    def may_pass(self) -> bool:
        """True if the same request may succeed later: there was no answer, or one that says so."""
        if self.no_login or _REGION in self.text:
            return False
        if self.status is None or self.status in _TRANSIENT:
            return True
        return self.status >= 500 and self.status != 501

    @property
    def fix(self) -> str:
        if self.no_login:
            keys = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            return f'{keys}; of a profile: eval "$(aws configure export-credentials --format env)"'
        if self.status in (401, 403) or self.code in ("ExpiredToken", "InvalidAccessKeyId"):
            return "give credentials that may read, write, list and delete under this url"
        if self.code == "NoSuchBucket":
            return "create the bucket, or correct store.url"
        if self.status == 501:
            return "use a server that knows PutObject with If-None-Match"
        if _REGION in self.text:
            return "set AWS_REGION to the bucket's region"
        return "see that the server runs and AWS_ENDPOINT_URL names it, then resume: nothing was lost"
