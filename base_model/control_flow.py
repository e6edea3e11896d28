"""Branches and loops that the grammar draws from: their conditions, starts and updates.

Holes are those of the expressions in `tables.py`, and ``{a}``, the accumulator.
``i`` and ``j`` are loop items (of kind ``int`` or ``char``).
"""

from __future__ import annotations

from base_model.tables import Type

CONDITIONS: dict[Type, tuple[str, ...]] = {
    Type.INT: ("{v}>K", "{v}<K", "{v}%2==0", "{v}%2==1", "{v}%3==0"),
    Type.LIST: (
        "len({v})>M",
        "K in {v}",
        "{v}[0]>K",
        "{v}[-1]>K",
        "sum({v})>9",
        "len({v})%2==0",
        "{v}[0]%2==0",
    ),
    Type.STR: ("Q in {v}", "len({v})>M", "{v}[0]==Q", "{v}[-1]==Q", "len({v})%2==0"),
}

MERGING_CONDITIONS: dict[tuple[Type, Type], tuple[str, ...]] = {
    (Type.INT, Type.INT): ("{v}>y", "{v}<y", "y>K", "y%2==0"),
    (Type.INT, Type.LIST): ("{v} in y", "len(y)>M", "y[0]>{v}"),
    (Type.INT, Type.STR): ("len(y)>{v}", "Q in y", "y[0]==Q"),
    (Type.LIST, Type.INT): ("y in {v}", "{v}[0]>y", "y>K", "y%2==0"),
    (Type.LIST, Type.LIST): ("len({v})>len(y)", "{v}[0] in y", "{v}[0]>y[0]"),
    (Type.LIST, Type.STR): ("len({v})>len(y)", "Q in y", "y[0]==Q"),
    (Type.STR, Type.INT): ("len({v})>y", "y>K", "y%2==0"),
    (Type.STR, Type.LIST): ("len({v})>len(y)", "len(y)>M", "y[0]>K"),
    (Type.STR, Type.STR): ("{v}[0] in y", "y[0] in {v}", "len({v})>len(y)", "{v}[0]==y[0]"),
}

INT_RANGES: tuple[str, ...] = (
    "for i in range({v}):",
    "for i in range({v}%N):",
    "for i in range(1,{v}):",
    "for i in range(M):",
)

STARTS: dict[Type, tuple[str, ...]] = {
    Type.INT: ("0", "0", "0", "1", "K"),
    Type.LIST: ("[]", "[]", "[K]"),
    Type.STR: ("''", "''", "Q"),
}

UPDATES: dict[tuple[str, Type], tuple[str, ...]] = {
    ("int", Type.INT): ("+=i", "+=1", "+=K", "-=i", "+=i+K", "+=i*M", "=i-{a}", "=max({a},i)"),
    ("int", Type.LIST): (
        "+=[i]",
        "=[i]+{a}",
        "+=[i+K]",
        "+=[i*M]",
        "+=[i,i]",
        "+=[K]",
        "+=[len({a})]",
        "={a}[1:]+[i]",
    ),
    ("int", Type.STR): ("+=Q", "+=str(i)", "=str(i)+{a}", "=Q+{a}"),
    ("char", Type.INT): ("+=1", "+=K", "=1-{a}", "+=ord(i)-97", "-=1", "={a}*2"),
    ("char", Type.LIST): ("+=[ord(i)-97]", "+=[K]", "+=[len({a})]", "=[ord(i)-97]+{a}"),
    ("char", Type.STR): ("=i+{a}", "+=i+i", "+=i", "=i+{a}+i", "+=Q", "+=i+Q", "={a}[::-1]+i"),
}

INNER_UPDATES: dict[Type, tuple[str, ...]] = {
    Type.INT: ("+=j", "+=1", "+=i", "+=i+j", "=j-{a}"),
    Type.LIST: ("+=[j]", "+=[i]", "=[j]+{a}", "+=[i+j]"),
    Type.STR: ("+=Q", "+=str(j)", "=str(i)+{a}"),
}

ITEM_CONDITIONS: dict[str, tuple[str, ...]] = {
    "int": ("i>K", "i<K", "i%2==0", "i%2==1", "i%3==0", "i!=K"),
    "char": ("i>Q", "i!=Q", "i==Q", "i in 'ab'"),
}

MERGING_ITEM_CONDITIONS: dict[tuple[str, Type], tuple[str, ...]] = {
    ("int", Type.INT): ("i>y", "i<y", "i!=y", "i%2==y%2"),
    ("int", Type.LIST): ("i in y", "i not in y", "i>y[0]"),
    ("char", Type.STR): ("i in y", "i not in y", "i==y[0]", "i!=y[-1]"),
}

ADJACENT: dict[Type, tuple[tuple[str, ...], ...]] = {
    Type.LIST: (
        ("0", " if {v}[i]<{v}[i+1]:", "  {a}+=K"),
        ("0", " if {v}[i]>{v}[i+1]:", "  {a}+={v}[i]"),
        ("[]", " {a}+=[{v}[i]+{v}[i+1]]"),
        ("[]", " {a}+=[{v}[i+1]-{v}[i]]"),
        ("[]", " if {v}[i]<{v}[i+1]:", "  {a}+=[{v}[i]]"),
        ("[]", " {a}+=[max({v}[i],{v}[i+1])]"),
    ),
    Type.STR: (
        ("0", " if {v}[i]<{v}[i+1]:", "  {a}+=K"),
        ("0", " if {v}[i]=={v}[i+1]:", "  {a}+=K"),
        ("0", " if {v}[i]!={v}[i+1]:", "  {a}+=K"),
        ("[]", " if {v}[i]<{v}[i+1]:", "  {a}+=[i]"),
    ),
}

PAIRS: dict[Type, tuple[tuple[str, ...], ...]] = {
    Type.LIST: (
        ("0", "  if i<j:", "   {a}+=1"),
        ("0", "  if i+j==N:", "   {a}+=1"),
        ("0", "  if j==i+1:", "   {a}+=i"),
        ("[]", "  if j==i+K:", "   {a}+=[i]"),
    ),
    Type.STR: (
        ("0", "  if i<j:", "   {a}+=1"),
        ("0", "  if i==j:", "   {a}+=1"),
    ),
}
