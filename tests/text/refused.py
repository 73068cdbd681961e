#!/usr/bin/python3
"""Files that are no tokenizers, or have what is not supported, are refused with the place in the file.

    refused.py --tokenize PROGRAM"""
import copy
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import parser_of  # noqa: E402

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")
DEEP = {"type": "NFC"}
for _ in range(70):
    DEEP = {"type": "Sequence", "normalizers": [DEEP]}


SOON = 240  # seconds, of sanitizer builds too


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def regex(text):
    return split({"Regex": text})


# (tokenizer, member, value, exit status, what is said); "-" in a member's place: it is removed
CASES = [
    ("gpt2", "version", "2.0", 4, r"version: .*|version '2.0'"),
    ("gpt2", "extra", 1, 4, r": extra$"),
    ("gpt2", "model", "-", 3, r": model$"),
    ("gpt2", "model", None, 3, r": model$"),
    ("gpt2", "model.type", "Transducer", 4, r"model 'Transducer' is not known"),
    ("gpt2", "model.dropout", 0.1, 4, r": model[.]dropout$"),
    ("gpt2", "model.vocab", [], 3, r": model[.]vocab$"),
    ("gpt2", "model.vocab.a", -1, 3, r": model[.]vocab[.]a$"),
    ("gpt2", "model.vocab.a", 1 << 40, 4, r"an id of 16777216 or more"),
    ("gpt2", "model.vocab.a", 1, 3, r"id \d+ is given twice"),
    ("gpt2", "model.merges", "-", 3, r": model[.]merges$"),
    ("gpt2", "model.merges.0", "a b c", 3, r": model[.]merges\[0\]$"),
    ("gpt2", "model.merges.0", ["a", "zzzz"], 3, r"not in the vocabulary"),
    ("gpt2", "model.unk_token", 7, 3, r": model[.]unk_token$"),
    ("gpt2", "model.byte_fallback", "yes", 3, r"true or false is needed"),
    ("gpt2", "normalizer", {"type": "Append", "append": "x"}, 4, r"normalizer 'Append' is not known"),
    ("gpt2", "normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Mystery"}]}, 4,
     r": normalizer[.]normalizers\[1\][.]type$"),
    ("gpt2", "normalizer", {"type": "Strip", "strip_left": True}, 3, r": normalizer[.]strip_right$"),
    ("gpt2", "normalizer", {"type": "NFC", "how": 1}, 4, r": normalizer[.]how$"),
    ("gpt2", "normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, 3, r"no compiled map"),
    ("gpt2", "normalizer", {"type": "Precompiled", "precompiled_charsmap": "?"}, 3, r"no compiled map"),
    ("gpt2", "normalizer", {"type": "Replace", "pattern": {"String": ""}, "content": "x"}, 4, r"an empty pattern"),
    ("gpt2", "normalizer", DEEP, 3, r"nested too deeply"),
    ("gpt2", "pre_tokenizer", regex("(a"), 4, r"'\(' without '\)'"),
    ("gpt2", "pre_tokenizer", regex("[a&&b]"), 4, r"'&&' in a class"),
    ("gpt2", "pre_tokenizer", regex("[a[b]]"), 4, r"'\[' in a class"),
    ("gpt2", "pre_tokenizer", regex(r"\K"), 4, r"\\K"),
    ("gpt2", "pre_tokenizer", regex("(?~a)"), 4, r"a group '\(\?~'"),
    ("gpt2", "pre_tokenizer", regex(r"\p{Nothing}"), 4, r"pre_tokenizer[.]pattern[.]Regex$"),
    ("gpt2", "pre_tokenizer", split({"Glob": "*"}), 4, r": pre_tokenizer[.]pattern[.]Glob$"),
    ("gpt2", "pre_tokenizer", split({"String": "a"}, "Scattered"), 4, r"unknown word 'Scattered'"),
    ("gpt2", "pre_tokenizer", {"type": "Metaspace", "replacement": "ab"}, 3, r"one character is needed"),
    ("gpt2", "pre_tokenizer", {"type": "UnicodeScripts"}, 4, r"pre-tokenizer 'UnicodeScripts' is not known"),
    ("gpt2", "decoder", {"type": "ByteLevel", "offsets": True}, 4, r": decoder[.]offsets$"),
    ("gpt2", "decoder", 5, 3, r": decoder$"),
    ("gpt2", "added_tokens.0.content", "-", 3, r": added_tokens\[0\][.]content$"),
    ("gpt2", "added_tokens.0.special", "no", 3, r": added_tokens\[0\][.]special$"),
    ("gpt2", "added_tokens", {}, 3, r": added_tokens$"),
    ("llama2", "post_processor.single.0", {"SpecialToken": {"id": "<none>", "type_id": 0}}, 3, r"that special_tokens does not have"),
    ("llama2", "post_processor.single.1", {"Sequence": {"id": "B", "type_id": 0}}, 3, r"a text other than A"),
    ("llama2", "post_processor.type", "Other", 4, r"post-processor 'Other' is not known"),
    ("t5", "model.vocab.0", ["a"], 3, r": model[.]vocab\[0\]$"),
    ("t5", "model.unk_id", 1000000, 3, r": model[.]unk_id$"),
    ("bert", "model.max_input_chars_per_word", -1, 3, r": model[.]max_input_chars_per_word$"),
]


def changed(whole, path, value):
    whole = copy.deepcopy(whole)
    *above, last = path.split(".")
    at = whole
    for key in above:
        at = at[int(key) if isinstance(at, list) else key]
    last = int(last) if isinstance(at, list) else last
    if value == "-":
        del at[last]
    else:
        at[last] = value
    return whole


def run(program, path):
    return subprocess.run([program, path], input="61\n", capture_output=True, text=True, check=False, timeout=SOON)


def check(program, work, name, path, value, status, said):
    with open(os.path.join(RECORDED, f"{name}.json"), encoding="utf-8") as file:
        whole = changed(json.load(file), path, value)
    target = os.path.join(work, "tokenizer.json")
    with open(target, "w", encoding="utf-8") as file:
        json.dump(whole, file)
    done = run(program, target)
    code = {3: "E0397", 4: "E0440"}[status]
    good = done.returncode == status and re.search(said, done.stderr, re.M) and f"error[{code}]" in done.stderr and not done.stdout
    if not good:
        print(f"{name}, {path} = {str(value)[:60]}: exit status {done.returncode}, and not {status} with {said!r}:\n{done.stderr}")
    return good


# Texts that are refused: (tokenizer, changes, text, what is said)
TEXTS = [
    ("clip", [("model.unk_token", None)], "a日", None),  # BPE leaves it out
    ("bert", [("model.unk_token", "[NONE]")], "日", "the model has no token for"),
    ("t5", [("model.unk_id", None)], "日", "the model has no token for"),
    ("gpt2", [("pre_tokenizer", regex("(?:a|a)*[b-z]"))], "a" * 100, "a regular expression: "),
    ("gpt2", [("normalizer", {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"}] * 9})],
     "a", "the text becomes longer than 256 MiB"),
]


def check_text(program, work, name, changes, text, said):
    with open(os.path.join(RECORDED, f"{name}.json"), encoding="utf-8") as file:
        whole = json.load(file)
    for path, value in changes:
        whole = changed(whole, path, value)
    target = os.path.join(work, "tokenizer.json")
    with open(target, "w", encoding="utf-8") as file:
        json.dump(whole, file)
    done = subprocess.run([program, target], input=text.encode().hex() + "\n", capture_output=True, text=True, check=False, timeout=SOON)
    got = json.loads(done.stdout) if done.returncode == 0 and done.stdout else {}
    good = said in got.get("error", "") if said else "ids" in got
    if not good:
        print(f"{name}, {text[:20]!r}: {got or done}")
    return good


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("--tokenize", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        results = [check(args.tokenize, work, *case) for case in CASES] + [check_text(args.tokenize, work, *case) for case in TEXTS]
    print(f"{len(results)} cases, {results.count(False) + results.count(None)} wrong")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
