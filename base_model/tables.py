"""Tables that the grammar draws from: types, constants and templates. Small operands, many structures.

Holes: ``{v}`` the current value, ``{e}`` the same where brackets are never needed, ``{a}`` the accumulator,
``K`` a small addend, ``M`` a small factor, ``N`` a small modulus, ``Q`` a quoted letter, ``W`` two of them.
``i`` and ``j`` are loop items (of kind ``int`` or ``char``), ``y`` is the second argument.
"""

from __future__ import annotations

from enum import StrEnum


class Type(StrEnum):
    """Types of the values that flow through a program."""

    INT = "int"
    LIST = "list"
    STR = "str"


LETTERS = "abcd"

FIRST_ARGUMENT: dict[Type, float] = {Type.INT: 0.22, Type.LIST: 0.45, Type.STR: 0.33}

CONSTANTS: dict[str, tuple[str, ...]] = {
    "K": ("1", "2", "3", "4", "5"),
    "M": ("2", "3"),
    "N": ("2", "3", "4", "5"),
    "Q": tuple(f"'{letter}'" for letter in "abc"),
    "W": tuple(f"'{first}{second}'" for first in "abc" for second in "abc"),
}

STEPS: dict[tuple[Type, Type], tuple[str, ...]] = {
    (Type.INT, Type.INT): (
        "{v}+K",
        "{v}-K",
        "{v}*M",
        "{v}//M",
        "{v}%N",
        "abs({e}-K)",
        "max({e},K)",
        "min({e},K)",
        "K-{v}",
    ),
    (Type.INT, Type.LIST): (
        "[{e},K]",
        "[K,{e}]",
        "[{e}]*M",
        "list(range({v}%N))",
        "[{e},{v}+K]",
        "[i+{v} for i in range(M)]",
        "[i for i in range({e}) if i%M==1]",
        "[{v}//M,{v}%M]",
        "[{e},K,K]",
        "[K,{e},K]",
        "[K,K,{e}]",
        "[K,{v}+K]",
        "[{e}]+[K]*M",
    ),
    (Type.INT, Type.STR): (
        "str({e})",
        "Q*({v}%N)",
        "str({e})+Q",
        "Q+str({e})",
        "Q*({v}%N)+Q",
        "str({e})+W",
        "W+str({e})",
        "Q+str({e})+Q",
        "str({v}+K)+Q",
        "W*({v}%M)",
    ),
    (Type.LIST, Type.INT): (
        "len({e})",
        "sum({e})",
        "max({e})",
        "min({e})",
        "{v}[0]",
        "{v}[-1]",
        "{v}.count(K)",
        "len(set({e}))",
        "{v}[0]+{v}[-1]",
        "max({e})-min({e})",
        "sum({v}[1:])",
        "sum({v}[:M])",
        "sum(i for i in {v} if i>K)",
        "sum(i for i in {v} if i%2==0)",
        "len([i for i in {v} if i>K])",
        "max({e})+K",
        "min({e})+K",
        "sum({e})+K",
        "{v}.count(K)+K",
        "len([i for i in {v} if i<K])",
        "max({v}[0],K)",
        "min({v}[-1],K)",
        "sorted({e})[0]+K",
        "len({e})+K",
        "{v}[0]+K",
        "{v}[-1]-K",
    ),
    (Type.LIST, Type.LIST): (
        "{v}[::-1]",
        "sorted({e})",
        "sorted({e})[::-1]",
        "{v}[1:]",
        "{v}[:-1]",
        "{v}[::2]",
        "{v}[:M]",
        "{v}+[K]",
        "[K]+{v}",
        "{v}+{v}",
        "{v}[1:]+[K]",
        "{v}[::-1]+[K]",
        "[i+K for i in {v}]",
        "[i-K for i in {v}]",
        "[i*M for i in {v}]",
        "[i%N for i in {v}]",
        "[i for i in {v} if i>K]",
        "[i for i in {v} if i<K]",
        "[i for i in {v} if i%2==0]",
        "[i for i in {v} if i!=K]",
        "[i+K for i in {v} if i>K]",
        "{v}[1:]+{v}[:1]",
        "{v}+[len({e})]",
        "{v}+[sum({e})]",
        "[max({e}),min({e})]",
        "[K,K]+{v}",
        "{v}+[K,K]",
        "[K]+{v}+[K]",
        "[K]+{v}[1:]",
        "{v}[:-1]+[K]",
        "[K]+{v}[::-1]",
        "[{v}[0],K]",
        "[K,{v}[-1]]",
        "[len({e}),K]",
        "[sum({e}),K]",
        "[i for i in {v} if i>K]+[K]",
        "[max(i,K) for i in {v}]",
        "[min(i,K) for i in {v}]",
    ),
    (Type.LIST, Type.STR): (
        "''.join(str(i) for i in {v})",
        "Q*len({e})",
        "str({v}[0])+Q",
        "Q+str({v}[-1])",
        "Q*({v}[0]%N)",
        "''.join(Q for i in {v} if i>K)",
        "W*len({e})",
        "str({v}[0])+W",
        "W+str({v}[-1])",
        "Q*len({e})+Q",
        "Q+str(len({e}))",
        "str(max({e}))+Q",
    ),
    (Type.STR, Type.INT): (
        "len({e})",
        "{v}.count(Q)",
        "len(set({e}))",
        "{v}.find(Q)",
        "len({e})*M",
        "len({e})+K",
        "len({e})-K",
        "{v}.count(Q)+K",
        "{v}.count(Q)*M",
        "{v}.count(Q)+{v}.count(Q)",
        "K-len({e})",
        "max(len({e}),K)",
    ),
    (Type.STR, Type.LIST): (
        "[ord(i)-97 for i in {v}]",
        "[len({e}),K]",
        "list(range(len({e})))",
        "[{v}.count(i) for i in 'abc']",
        "[{v}.count(i) for i in {v}]",
        "[{v}.count(Q),len({e})]",
        "[{v}.count(Q),K]",
        "[{v}.count(Q),{v}.count(Q)]",
        "[K,len({e})]",
        "[len({e})+K]",
        "[K]*len({e})",
    ),
    (Type.STR, Type.STR): (
        "{v}[::-1]",
        "{v}+Q",
        "Q+{v}",
        "{v}[1:]",
        "{v}[:-1]",
        "{v}[::2]",
        "{v}[:M]",
        "{v}+{v}",
        "{v}.upper()",
        "{v}.replace(Q,Q)",
        "''.join(sorted({e}))",
        "{v}[1:]+{v}[0]",
        "{v}[-1]+{v}",
        "{v}[::-1]+Q",
        "Q+{v}+Q",
        "{v}+W",
        "W+{v}",
        "Q+{v}+W",
        "W+{v}+Q",
        "{v}[1:]+Q",
        "W+{v}[1:]",
        "{v}[:-1]+W",
        "{v}[0]+W",
        "W+{v}[-1]",
        "{v}[::-1]+W",
        "Q+{v}[::-1]",
        "{v}.upper()+W",
        "{v}.replace(Q,W)",
        "{v}+{v}[::-1]",
        "''.join(i+i for i in {v})",
        "''.join(i for i in {v} if i!=Q)",
        "''.join(i+Q for i in {v})",
    ),
}

MERGES: dict[tuple[Type, Type], dict[Type, tuple[str, ...]]] = {
    (Type.INT, Type.INT): {
        Type.INT: (
            "{v}+y",
            "{v}-y",
            "y-{v}",
            "max({e},y)",
            "min({e},y)",
            "abs({v}-y)",
            "{v}+y*M",
            "{v}*M-y",
            "{v}*K+y",
        ),
        Type.LIST: ("[{e},y]", "[{e},K,y]", "[y,{e},K]", "[{e}]*(y%N)"),
        Type.STR: ("str({e})+str(y)",),
    },
    (Type.INT, Type.LIST): {
        Type.LIST: (
            "y+[{e}]",
            "[{e}]+y",
            "[i+{v} for i in y]",
            "[i for i in y if i>{v}]",
            "[i for i in y if i!={v}]",
            "y[{v}%2:]",
        ),
        Type.INT: ("y.count({e})", "sum(y)+{v}", "len(y)+{v}", "max(y)-{v}"),
    },
    (Type.INT, Type.STR): {
        Type.STR: ("y*({v}%N)", "y+str({e})", "str({e})+y", "y[{v}%2:]", "y[:{v}%N]"),
        Type.INT: ("len(y)+{v}",),
        Type.LIST: (
            "[{e},len(y)]",
            "[{e},len(y),K]",
        ),
    },
    (Type.LIST, Type.INT): {
        Type.LIST: (
            "{v}+[y]",
            "[y]+{v}",
            "[i+y for i in {v}]",
            "[i for i in {v} if i>y]",
            "[i for i in {v} if i!=y]",
            "{v}[y%2:]",
        ),
        Type.INT: (
            "{v}.count(y)",
            "sum({e})+y",
            "sum({e})-y",
            "len({e})+y",
            "max({e})-y",
            "sum(i for i in {v} if i>y)",
        ),
    },
    (Type.LIST, Type.LIST): {
        Type.LIST: (
            "{v}+y",
            "y+{v}",
            "[i for i in {v} if i in y]",
            "[i for i in {v} if i not in y]",
            "[{v}[0],y[-1]]",
            "{v}[1:]+y",
            "{v}[::-1]+y",
            "{v}+[K]+y",
        ),
        Type.INT: (
            "len({e})+len(y)",
            "len(y)+len({e})+K",
            "sum({e})-sum(y)",
            "{v}[0]+y[0]",
            "max({e})-min(y)",
        ),
    },
    (Type.LIST, Type.STR): {
        Type.STR: ("y*len({e})", "y+str({v}[0])", "y+Q+str({v}[0])"),
        Type.INT: (
            "len({e})+len(y)",
            "len(y)+len({e})+K",
        ),
        Type.LIST: ("{v}+[len(y)]", "[i+len(y) for i in {v}]", "{v}+[len(y),K]"),
    },
    (Type.STR, Type.INT): {
        Type.STR: ("{v}+str(y)", "str(y)+{v}", "{v}*(y%N)", "{v}[y%2:]", "{v}[:y%N]"),
        Type.INT: ("len({e})+y",),
        Type.LIST: ("[len({e}),y]",),
    },
    (Type.STR, Type.LIST): {
        Type.STR: ("{v}*len(y)", "{v}+str(y[0])", "{v}+Q+str(y[0])"),
        Type.INT: ("len({e})+sum(y)", "len({e})+len(y)", "len(y)+len({e})+K"),
        Type.LIST: ("y+[len({e})]",),
    },
    (Type.STR, Type.STR): {
        Type.STR: (
            "{v}+y",
            "y+{v}",
            "''.join(i for i in {v} if i in y)",
            "''.join(i for i in {v} if i not in y)",
            "{v}+y[::-1]",
            "{v}+Q+y",
            "{v}[0]+y[-1]",
            "{v}[1:]+y",
        ),
        Type.INT: ("len({e})+len(y)", "len(y)+len({e})+K", "{v}.count(y[0])"),
        Type.LIST: ("[len({e}),len(y)]",),
    },
}

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
