#!/usr/bin/env python3
"""Writes classes.inc: what the parts of Hugging Face tokenizers know of each code point, measured from the library.

    pip install tokenizers==0.23.*
    python data/tokenizers/unicode/generate_classes.py      (from the source root; some minutes)

The library mixes the tables of several crates and of Oniguruma, which are of different Unicode versions; each flag is
measured where the library uses it. Python's unicodedata only names the candidates for combining classes.
"""
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

if not tokenizers.__version__.startswith("0.23."):
    sys.exit(f"the table is defined by tokenizers 0.23, this is {tokenizers.__version__}")

SPACE, REMOVED, NONSPACING, COMBINING, NUMERIC, PUNCTUATION, WORD, IDEOGRAPH, CANONICAL, COMPATIBLE = (
    1 << i for i in range(10)
)  # as in characters.h
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
BLOCK = 128
HANGUL = range(0xAC00, 0xD7A4)

code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
nfd, nfkd, nfc = (n().normalize_str for n in (normalizers.NFD, normalizers.NFKD, normalizers.NFC))
lower = normalizers.Lowercase().normalize_str
stripped = normalizers.BertNormalizer(False, False, True, False).normalize_str
clean = normalizers.BertNormalizer(True, False, False, False).normalize_str
spaced = normalizers.BertNormalizer(False, True, False, False).normalize_str
strip_accents = normalizers.StripAccents().normalize_str
words = pre_tokenizers.Whitespace().pre_tokenize_str
digits = pre_tokenizers.Digits(True).pre_tokenize_str
punctuation = pre_tokenizers.Punctuation().pre_tokenize_str


def matched(pattern):
    """The code points that a regular expression matches."""
    found = set()
    for start in range(0, len(code_points), 65536):
        part = code_points[start : start + 65536]
        text = "".join(map(chr, part))
        kept = "".join(piece for piece, _ in pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(text))
        found |= set(part) - set(map(ord, kept))
    return found


def swaps(a, b):
    return nfd(a + b) == b + a and a != b


examples = {}  # combining class -> a code point that the reference puts in that class
for c in code_points:
    value, s = unicodedata.combining(chr(c)), chr(c)
    if value and nfd(s) == s and (swaps(s, "\u0334") or swaps("\u0345", s)):  # classes 1 and 240, the extremes
        examples.setdefault(value, s)
classes = sorted(examples)
assert (classes[0], classes[-1]) == (1, 240)


def combining_class(c):
    s = chr(c)
    if nfd(s) != s or not swaps(s, "\u0334") and not swaps("\u0345", s):
        return 0
    same = [v for v in classes if not swaps(s, examples[v]) and not swaps(examples[v], s)]
    assert len(same) == 1, (hex(c), same)
    return same[0]


category = {}
for index, name in enumerate(CATEGORIES[:-1]):
    for c in matched(r"\p{%s}" % name):
        assert c not in category, hex(c)
        category[c] = index
spaces = matched(r"\s")
assert matched(r"\d") == {c for c, i in category.items() if CATEGORIES[i] == "Nd"}
assert matched(r"\p{L}") == {c for c, i in category.items() if CATEGORIES[i][0] == "L"}
assert matched(r"\p{N}") == {c for c, i in category.items() if CATEGORIES[i][0] == "N"}
assert matched(r"\p{M}") == {c for c, i in category.items() if CATEGORIES[i][0] == "M"}
assert matched(r"\p{P}") == {c for c, i in category.items() if CATEGORIES[i][0] == "P"}

records, values, decompositions, pairs = {}, [], [], []
for c in range(0x110000):
    if 0xD800 <= c < 0xE000:
        values.append(records.setdefault((0, 0, len(CATEGORIES) - 1, 0), len(records)))
        continue
    s, flags = chr(c), 0
    pieces = [word for word, _ in words("a" + s + "b")]
    assert (pieces == ["a", "b"]) == (c in spaces), hex(c)
    flags |= SPACE if c in spaces else 0
    flags |= WORD if pieces == ["a" + s + "b"] else 0
    flags |= REMOVED if clean(s) == "" else 0
    flags |= COMBINING if strip_accents(s) == "" else 0
    flags |= IDEOGRAPH if spaced(s) != s else 0
    flags |= NUMERIC if len(digits("a" + s)) == 2 else 0
    flags |= PUNCTUATION if len(punctuation("a" + s)) == 2 else 0
    canonical, compatible = nfd(s), nfkd(s)
    if canonical == s and stripped(s) == "":
        flags |= NONSPACING
    if c not in HANGUL:
        if canonical != s:
            flags |= CANONICAL
            decompositions.append((c * 2, canonical))
            first = nfc(canonical[:-1])
            if len(canonical) > 1 and nfc(canonical) == s:
                assert len(first) == 1, hex(c)
                pairs.append((ord(first) << 32 | ord(canonical[-1]), c))
        if compatible != canonical:
            flags |= COMPATIBLE
            decompositions.append((c * 2 + 1, compatible))
    lowered = lower(s)
    if c == 0x130:
        assert lowered == "i\u0307"  # the only expansion; normalizers.cpp special-cases it
        lowered = s
    assert len(lowered) == 1, hex(c)
    entry = (ord(lowered) - c, flags, category.get(c, len(CATEGORIES) - 1), combining_class(c))
    values.append(records.setdefault(entry, len(records)))
blocks, index = {}, []
for start in range(0, 0x110000, BLOCK):
    index.append(blocks.setdefault(tuple(values[start : start + BLOCK]), len(blocks)))
pool = []
entries = []
for key, text in sorted(decompositions):
    entries.append((key, len(pool) << 5 | len(text)))
    assert len(text) < 32
    pool.extend(map(ord, text))


def array(kind, name, items, text=str):
    lines, line = [], " "
    for item in items:
        word = " " + text(item) + ","
        if len(line) + len(word) > 120:
            lines.append(line)
            line = " "
        line += word
    lines.append(line)
    return f"constexpr {kind} {name}[] = {{\n" + "\n".join(lines) + "\n};\n"


def braces(item):
    return "{" + ",".join(map(str, item)) + "}"


out = f"// Generated by generate_classes.py from tokenizers {tokenizers.__version__}. Do not edit.\n// clang-format off\n"
out += array("Character", "kCharacters", records, braces)
out += array("std::uint16_t", "kCharacterBlocks", index)
out += array("std::uint16_t", "kCharacterValues", [v for block in blocks for v in block])
out += array("Decomposition", "kDecompositions", entries, braces)
out += array("char32_t", "kDecomposed", pool)
out += array("Composition", "kCompositions", sorted(pairs), braces)
path = pathlib.Path(__file__).with_name("classes.inc")
path.write_text(out)
print(f"{path}: {len(records)} records, {len(blocks)} blocks of {BLOCK}, {len(out)} bytes, {len(pairs)} pairs")
