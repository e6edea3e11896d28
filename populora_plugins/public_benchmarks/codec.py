"""Values as text between the host and a sandbox, richer than plain data: benchmarks know complex numbers and inf.

The text of this module is also part of every program that a benchmark runs, so it is one file of standard library
code for Python 3.9 or later. Both directions only ever build builtin values: what a program answers is data.
"""

import hashlib
import json
import marshal

LARGE = 2_800_000
"""Values in a list or tuple and its items; more of them would not fit into the text of an answer."""

COLLIDING = 1_000
"""Different values in a set, or keys in a dict, that may share a hash: each is compared with all of them before it."""


def encode(value):
    """The text of a value. A subclass of a builtin type counts as that type, as `==` would take it.

    A list or tuple that is too large for a text is its digest: such an answer is right where it is the same, type for
    type, as the one that is expected.
    """
    try:
        packed = _digest(value) if _large(value) else None
    except ValueError:  # something in it is no builtin value
        packed = None
    return json.dumps(packed or _pack(value, 0))


def decode(text):
    """The value that a text stands for; one that is none of those below comes back equal to nothing.

    Raises:
        ValueError, TypeError, KeyError, IndexError, RecursionError: it stands for none.
    """
    return _unpack(json.loads(text))


def refuse_colliding(items):
    """Raise ValueError where so many of a list's items share a hash that a set of them would take hours."""
    hashes = sorted(map(hash, items))
    places = range(COLLIDING, len(hashes))
    crowded: dict[int, set[object]] = {
        hashes[place]: set() for place in places if hashes[place] == hashes[place - COLLIDING]
    }
    for item in items if crowded else ():
        same = crowded.get(hash(item), set())
        same.add(item)
        if len(same) > COLLIDING:
            raise ValueError(f"expected at most {COLLIDING} different values of one hash")


def _large(value):
    if type(value) not in (list, tuple):
        return False
    return sum(len(item) if type(item) in (list, tuple) else 1 for item in value) > LARGE


def _digest(value):
    digest = hashlib.sha256(type(value).__name__.encode())
    for start in range(0, len(value), 512):
        digest.update(
            marshal.dumps(value[start : start + 512], 2)
        )  # version 2: the same value, the same bytes
    return ["h", len(value), digest.hexdigest()]


def _pack(value, depth):
    if depth > 60:
        return ["o", "value that is nested too deeply"]
    depth += 1
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        number = int(value)
        return number if -(2**53) < number < 2**53 else ["i", hex(number)]
    if isinstance(value, float):
        return ["f", float.__repr__(value)]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, complex):
        return ["c", float.__repr__(value.real), float.__repr__(value.imag)]
    if isinstance(value, (bytes, bytearray)):
        return ["b", bytes(value).hex()]
    for kind, name in ((list, "l"), (tuple, "t"), (set, "s"), (frozenset, "s")):
        if isinstance(value, kind):
            return [name, [_pack(item, depth) for item in list(value)]]
    if isinstance(value, dict):
        return ["d", [[_pack(key, depth), _pack(item, depth)] for key, item in dict.items(value)]]
    return ["o", type(value).__name__]


def _unpack(packed):
    if not isinstance(packed, list):
        if isinstance(packed, (dict, float)):
            raise ValueError("not a packed value")
        return packed
    name, *parts = packed
    if name == "i":
        return int(parts[0], 16)
    if name == "f":
        return float(parts[0])
    if name == "c":
        return complex(float(parts[0]), float(parts[1]))
    if name == "b":
        return bytes.fromhex(parts[0])
    if name == "o":
        return object()
    if name == "h":
        return ("too large for a text", int(parts[0]), str(parts[1]))
    if name == "d":
        entries = [(_unpack(key), _unpack(item)) for key, item in parts[0]]
        refuse_colliding([key for key, _ in entries])
        return dict(entries)
    items = [_unpack(item) for item in parts[0]]
    if name == "s":
        refuse_colliding(items)
    return {"l": list, "t": tuple, "s": set}[name](items)
