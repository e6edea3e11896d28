"""Proof that sampled log-probabilities are those of one policy and not of another, from the same tokens.

Two engines never agree to the bit: in bfloat16 they differ by 0.1 nats per token, and by 0.3 on one in 25. A single
difference therefore proves nothing, but many tokens do. Let s be what was served, o the member's own numbers and a
those of another policy, such as the bare base. Least squares of s - a on o - a gives the share of the way from a to o
that was served: 1 where the member answers, 0 where the other does, 2 where an adapter is scaled twice over.

After a small step o - a is a tenth of what bfloat16 rounds. Where o and a are rounded as s is, their noise would draw
the share towards 0, however many the tokens. So an instrument takes the place of o - a in the products: the same
difference in float32, which knows nothing of any pass's noise (Wald 1940).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Logprobs = npt.NDArray[np.float64]

ROUNDING = {"float32": 3e-5, "bfloat16": 0.25}
"""Prior of one token's rounding error, in nats, for as long as there are too few tokens to measure it."""
BELIEF = 10
"""Weight of this prior, in tokens."""
TELLING = 0.06
"""The share's standard error from which on it tells: 0 and 1 are then eight from 0.5, and half the scale is seen."""
EXACT = 2e-4
"""The mean difference of two passes in float32 that is refused; they come within a tenth of it."""
CERTAIN = 5.0
"""Standard errors from 1 at which a share is another's and no chance."""
SCALED = 0.2
"""A share this far from 1, beyond three standard errors, is another scale."""


class ProofResult(StrEnum):
    """Conclusion of the proof for one member."""

    APART = "told apart"
    NOT_YET = "cannot tell yet"
    BASE = "still the base"  # no token could tell, and none needs to
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class MismatchLimits:
    """Mean absolute differences, in nats per token.

    Attributes:
        warn, refuse: from here on.
        rounding: of one token, what is believed of it before it is measured.
    """

    warn: float
    refuse: float
    rounding: float

    @classmethod
    def of(cls, warn: float, refuse: float, *dtypes: str) -> MismatchLimits:
        """Build the limits for numbers computed in these dtypes; if none rounds to 16 bits, `EXACT` is refused."""
        rounding = max(ROUNDING[dtype] for dtype in dtypes)
        if rounding == ROUNDING["float32"]:
            return cls(EXACT, EXACT, rounding)
        return cls(warn, refuse, rounding)


@dataclass(frozen=True, slots=True)
class MemberProof:
    """Evidence about one member.

    Attributes:
        tokens: compared.
        mean, p99, largest: of the absolute difference from the member's own, in nats.
        alike: policies that these tokens cannot tell from its own yet.
        other: the policy that answers instead; None where none of the known ones does.
        share: of the way from the base to its own that was served; None where that is unknown, or where what was
            served lies on no such way.
    """

    told: ProofResult
    tokens: int
    mean: float
    p99: float
    largest: float
    alike: tuple[str, ...] = ()
    other: str | None = None
    share: float | None = None


def judge(
    served: Logprobs,
    own: Logprobs,
    others: Mapping[str, Logprobs],
    base: str,
    limits: MismatchLimits,
    exact: Mapping[str, Logprobs] | None = None,
) -> MemberProof:
    """Tell whose numbers were served.

    Args:
        served: [n].
        own: of the same tokens [n], in the precision of `served` or in float32.
        others: name of another policy -> what it gives them [n], in the same.
        base: which of them is the bare base.
        exact: name of another policy -> own numbers less its own, in float32 [n]; None where `own` is not rounded.
    """
    if served.shape != own.shape or not np.isfinite(served - own).all():
        return MemberProof(ProofResult.WRONG, len(served), math.inf, math.inf, math.inf)
    ways = exact or {}
    apart = np.abs(served - own)
    sizes = len(apart), float(apart.mean()), float(np.quantile(apart, 0.99)), float(apart.max())
    known = {
        name: other for name, other in others.items() if other.shape == own.shape and (own != other).any()
    }
    shares = {
        name: share_served(served, own, other, limits.rounding, ways.get(name))
        for name, other in known.items()
    }
    alike = tuple(name for name, (_, error) in shares.items() if error > TELLING)
    wrong = sizes[1] >= limits.refuse or any(
        1.0 - share > max(0.5, CERTAIN * error) for share, error in shares.values()
    )
    share, error = shares.get(base, (1.0, 0.0))
    wrong |= abs(share - 1.0) > max(SCALED + 3.0 * error, CERTAIN * error)
    if wrong:
        along = base in known and _along(served - known[base], own - known[base])
        return MemberProof(
            ProofResult.WRONG, *sizes, alike, _nearest(served, own, known), share if along else None
        )
    if base in others and base not in known:
        return MemberProof(ProofResult.BASE, *sizes, alike)
    return MemberProof(
        ProofResult.NOT_YET if alike else ProofResult.APART,
        *sizes,
        alike,
        share=share if base in known else None,
    )


def share_served(
    served: Logprobs, own: Logprobs, other: Logprobs, rounding: float, exact: Logprobs | None = None
) -> tuple[float, float]:
    """The share of the way from another policy to the member's own that was served, and its standard error.

    The error is the larger of two: residuals' squares in proportion to the tokens' weights, each as if its token had
    been left out (HC3, MacKinnon and White 1985), since a few tokens may carry all; and one spread for all tokens,
    drawn towards `rounding` while they are few.

    Args:
        exact: own numbers less the other's without noise, for an instrument.
    """
    moved, way = served - other, own - other
    along = way if exact is None else exact
    length = float(way @ along)
    if length <= 0.0:  # rounding has left nothing of the way
        return 1.0, math.inf
    share = float(moved @ along) / length
    weight = np.abs(way * along) / length
    rest = moved - share * way
    left_out = rest / np.maximum(1.0 - weight, 1e-9)
    robust = math.sqrt(float((along * along) @ (left_out * left_out))) / length
    spread = (BELIEF * rounding * rounding + float(rest @ rest)) / (BELIEF + len(rest))
    return share, max(robust, math.sqrt(spread * float(along @ along)) / length)


def _along(moved: Logprobs, way: Logprobs) -> bool:
    """True if the numbers moved as they do when an adapter is scaled: to first order along one line."""
    length = float(np.linalg.norm(moved) * np.linalg.norm(way))
    return length > 0.0 and float(moved @ way) > 0.7 * length


def _nearest(served: Logprobs, own: Logprobs, others: Mapping[str, Logprobs]) -> str | None:
    """The policy that answers instead: nearer than half the way from the member's own, and nearer than the rest."""
    far = {name: float(np.abs(served - other).mean()) for name, other in others.items()}
    near = min(far, key=far.__getitem__, default=None)
    return near if near is not None and far[near] < 0.5 * float(np.abs(served - own).mean()) else None
