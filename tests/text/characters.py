#!/usr/bin/env python3
"""Writes frontend/text/differing.def: characters of which the package `tokenizers` says something else than Unicode.

    characters.py > frontend/text/differing.def
    characters.py --newer > frontend/text/newer.def

Some of its tables are older than Unicode's: characters that came later are no punctuation, no marks .. to it. Asks the package about
every character, and compares with the newest Unicode. --newer writes the characters that its regular expressions know, and that
Unicode 14 does not, which is that of this Python and of Debian 12's PCRE2. Needs tokenizers, unicodedata2 and Python 3.11."""
import sys
import unicodedata

import unicodedata2 as unicode
from tokenizers import Regex, normalizers, pre_tokenizers

CODES = [code for code in range(0x110000) if not 0xd800 <= code < 0xe000]


def is_dropped(normalizer):
    return lambda code: normalizer.normalize_str("a" + chr(code)) == "a"


def is_split_at(pre_tokenizer):
    return lambda code: len(pre_tokenizer.pre_tokenize_str("a" + chr(code) + "a")) > 1


def bert(**how):
    options = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**options, **how})


def decomposes(code):
    return normalizers.NFKD().normalize_str(chr(code)) != normalizers.NFD().normalize_str(chr(code))


def is_punctuation(code):
    return unicode.category(chr(code))[0] == "P" or (code < 128 and chr(code) in "$+<=>^`|~")


def is_nonspacing(code):
    """What the normalizer drops is decomposed before."""
    return all(unicode.category(character) == "Mn" for character in unicode.normalize("NFD", chr(code)))


def is_other(code):
    return code in (0, 0xfffd) or (unicode.category(chr(code)) in ("Cc", "Cf", "Co") and code not in (9, 10, 13))


# (kind, what the package says, what Unicode says)
KINDS = [
    ("PUNCTUATION", is_split_at(pre_tokenizers.Punctuation()), is_punctuation),
    ("MARK", is_dropped(normalizers.StripAccents()), lambda c: unicode.category(chr(c))[0] == "M"),
    ("NONSPACING", is_dropped(bert(strip_accents=True)), is_nonspacing),
    ("OTHER", is_dropped(bert(clean_text=True)), is_other),
    ("COMPATIBLE", decomposes, lambda c: unicode.normalize("NFKD", chr(c)) != unicode.normalize("NFD", chr(c))),
]


# Of regular expressions; a category of one letter has those of two.
PROPERTIES = ["Cf", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk",
              "Sm", "So", "Alphabetic", "Lowercase", "Uppercase", "sc:Han"]


def newer():
    assert unicodedata.unidata_version == "14.0.0"
    print("""/* Characters that came after Unicode 14, and what they are to the regular expressions of the package `tokenizers`:
 * NEWER(property, first, last), by properties. Written by tests/text/characters.py --newer. */""")
    later = [code for code in CODES if unicodedata.category(chr(code)) == "Cn" and unicode.category(chr(code)) != "Cn"]
    for name in PROPERTIES:
        split = pre_tokenizers.Split(Regex(r"\p{%s}" % name.removeprefix("sc:")), "isolated")
        rows = []
        for code in later:
            if len(split.pre_tokenize_str("\n" + chr(code) + "\n")) == 1:
                continue
            if rows and rows[-1][1] == code - 1:
                rows[-1][1] = code
            else:
                rows.append([code, code])
        for first, last in rows:
            print(f'NEWER("{name}", {first:#x}, {last:#x})')


def main():
    if "--newer" in sys.argv[1:]:
        return newer()
    print("""/* What the package `tokenizers` says of characters if it is not what Unicode says, as its tables are older:
 * DIFFERING(kind, first, last, answer), in order of kinds and characters. Written by tests/text/characters.py. */""")
    for kind, package, standard in KINDS:
        rows = []
        for code in CODES:
            answer = package(code)
            if answer == standard(code):
                continue
            if rows and rows[-1][1] == code - 1 and rows[-1][2] == answer:
                rows[-1][1] = code
            else:
                rows.append([code, code, answer])
        for first, last, answer in rows:
            print(f"DIFFERING({kind}, {first:#x}, {last:#x}, {'true' if answer else 'false'})")


if __name__ == "__main__":
    main()
