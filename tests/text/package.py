#!/usr/bin/env python3
"""Tokenizers as those of known models, trained on small texts with the package `tokenizers`, and rankc's results against
the package's.

    package.py --tokenize PROGRAM [--lines N] [--seed S] [NAME...]   compares on N lines of mixed text (10,000)
    package.py --tokenize PROGRAM --expressions [--lines N]          the same of regular expressions
    package.py --tokenize PROGRAM --random N [--seed S]              the same of tokenizers of random parts
    package.py --record DIR                                         writes DIR/NAME.json and DIR/NAME.jsonl for recorded.py

Normalizers, pre-tokenizers, post-processors, decoders and added tokens are literally those of the models' tokenizer.json;
vocabularies are small. Needs tokenizers, and sentencepiece for the map of characters of T5. Not run by the suite."""
import argparse
import base64
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import AddedToken, Regex

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from recorded import differences, expression_tokenizer, marks_of  # noqa: E402

GPT4_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
              r"\s+(?!\S)|\s+")
QWEN_SPLIT = GPT4_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O_SPLIT = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
               r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
               r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_SPLITS = (r"\p{N}{1,3}", r"[一-龥\u3040-ゟ゠-ヿ]+",
                   r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
                   r"\s*[\r\n]+|\s+(?!\S)|\s+")

SENTENCES = """All human beings are born free and equal in dignity and rights. They're endowed with reason, and we'll act.
Tous les êtres humains naissent libres et égaux en dignité et en droits. L'été où l'œuvre naît, ça va ?
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Straße, GROẞE, Übermäßig, weiß.
Todos los seres humanos nacen libres e iguales en dignidad. ¿Qué pasó? ¡Mañana!
Все люди рождаются свободными и равными в своём достоинстве и правах. Ёжик идёт.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια. ΟΔΥΣΣΕΥΣ ὁ πολύτροπος.
يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. ١٢٣٤٥ العربيّة
כל בני האדם נולדו בני חורין ושווים בערכם. שָׁלוֹם עֲלֵיכֶם
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। १२३
সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।
மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ๑๒๓
人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。２０２６年
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。ﾊﾝｶｸ カタカナ
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 한국어
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm. Tiếng Việt đẹp.
Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. İSTANBUL ışık ILIK
ყველა ადამიანი იბადება თავისუფალი. Բոլոր մարդիկ ծնվում են ազատ.
ሁሉ ሰዎች ነጻና እኩል ናቸው። ᎣᏏᏲ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ
def f(x):\n    return x**2 + 3.14159e-10  # comment\n\tif x != None:\n\t\tprint("a\\tb", 'it\\'s')
for (int i = 0; i < n; ++i) { sum += a[i] * 0xFF; } // https://example.com/a?b=c&d=%20#e
SELECT * FROM t WHERE a >= 10 AND b <> 'x'; <html><body class="a">&amp;</body></html>
He said "don't", she'd say 'won't'; I'VE, I'LL, it'S, WE'RE — they’re… o'clock 'twas ſ'ſ K'K
1 12 123 1234 12345 3.14 1,000,000 0x1F 1e10 ½ ⅓ ² ③ Ⅷ ⅷ 五十 ٣٫١٤ १२३
""".splitlines()

EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "1️⃣", "❤️", "☺", "🧑🏿‍🚀", "🤷‍♀️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "✌🏻", "⚠️", "🫠", "♂", "⌚"]
ODD = ["ﬁ", "ﬃ", "①", "㎏", "ｆｕｌｌ", "Å", "Å", "Å", "é", "e\u0301", "ṩ", "s\u0323\u0307", "s\u0307\u0323", "가", "\u1100\u1161",
       "\u1100\u1161\u11a8", "Ǆ", "İ", "ß", "ẞ", "ΐ", "ᾳ", "ŉ", "ǰ", "Ω", "Ω", "K", "ſ", "가각", "豈", "슈", "…", "™", "№", "℃", "ª", "º",
       "\u00ad", "\u200d", "\u200c", "\u200b", "\ufeff", "\u2060", "\ufffd", "\u202e", "\u0600", "\u070f", "\u0345", "\u034f", "क्ष", "ক্ষ",
       "ก็", "ำ", "\u0e33", "\u0f73", "\U0001d15e", "\U0001d400", "\u2126", "\u212b", "\u0958", "\ufb1d", "\u0340", "\u0387", "\u1e9b\u0323",
       "a" + "\u0301" * 5, "Z\u0351\u036b\u0343", "▁", "▁▁a", "Ġ", "Ċ", "##", "##ing", "<0x41>", "</w>", "â", "Ã©", "ñ", "\u1100", "\ud7b0",
       "\u0000", "\u0001", "\u001f", "\u007f", "\u0085", "\u009f", "\ue000", "\U000f0000", "\ufdd0", "\uffff", "\u0378", "\U0010ffff", "֎"]
SPACES = [" ", " ", " ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\u00a0", "\u3000", "\u2003", "\u2028", "\u0085",
          "\u180e", "\u1680", "\u202f", "\x0b", "\x0c", "\x1c", " " * 7, " " * 17, " " * 40, "\t\t\t", "\r\n\r\n"]
WORDS = ["the", "The", "THE", "running", "unbelievable", "a", "I", "x1", "don't", "I'll", "we've", "you're", "'s", "'S", "'LL", "it’s", "do not",
         "hello", "world", "_under_score_", "camelCase", "CONSTANT", "e.g.", "U.S.A.", "foo@bar.com", "#tag", "--", "...", "!!!", "?!", "(a)", "[b]",
         "{c}", "$5", "€3", "50%", "a+b=c", "<b>", "|", "~", "`", "^", "n't", "'m"]
# Blocks of letters of all scripts.
BLOCKS = [(0x41, 0x5a), (0x61, 0x7a), (0xc0, 0x24f), (0x250, 0x2af), (0x370, 0x3ff), (0x400, 0x52f), (0x531, 0x58a), (0x5d0, 0x5ea), (0x620, 0x6d3),
          (0x710, 0x72f), (0x780, 0x7b1), (0x7c0, 0x7fa), (0x800, 0x85b), (0x8a0, 0x8b4), (0x900, 0x97f), (0x980, 0x9fe), (0xa00, 0xa76), (0xa80, 0xaff),
          (0xb00, 0xb77), (0xb80, 0xbfa), (0xc00, 0xc7f), (0xc80, 0xcf2), (0xd00, 0xd7f), (0xd80, 0xdf4), (0xe00, 0xe5b), (0xe80, 0xedf), (0xf00, 0xfda),
          (0x1000, 0x109f), (0x10a0, 0x10ff), (0x1100, 0x11ff), (0x1200, 0x139f), (0x13a0, 0x13fd), (0x1400, 0x167f), (0x1680, 0x169c), (0x16a0, 0x16f8),
          (0x1700, 0x1736), (0x1780, 0x17f9), (0x1800, 0x18aa), (0x1900, 0x194f), (0x1950, 0x1974), (0x1980, 0x19df), (0x1a00, 0x1a1f), (0x1a20, 0x1aad),
          (0x1b00, 0x1b7c), (0x1b80, 0x1bbf), (0x1c00, 0x1c4f), (0x1d00, 0x1dbf), (0x1e00, 0x1eff), (0x1f00, 0x1ffe), (0x2000, 0x206f), (0x2070, 0x209c),
          (0x20a0, 0x20bf), (0x20d0, 0x20f0), (0x2100, 0x218b), (0x2190, 0x23ff), (0x2460, 0x24ff), (0x2500, 0x27bf), (0x2c00, 0x2c5f), (0x2c80, 0x2cff),
          (0x2d30, 0x2d7f), (0x2e80, 0x2fd5), (0x3000, 0x303f), (0x3041, 0x309f), (0x30a0, 0x30ff), (0x3105, 0x312f), (0x3131, 0x318e), (0x3200, 0x33ff),
          (0x3400, 0x4dbf), (0x4e00, 0x9fff), (0xa000, 0xa48c), (0xa4d0, 0xa4ff), (0xa500, 0xa62b), (0xa640, 0xa69f), (0xa720, 0xa7ca), (0xa800, 0xa82b),
          (0xa840, 0xa877), (0xa880, 0xa8d9), (0xa8e0, 0xa8ff), (0xa980, 0xa9df), (0xaa00, 0xaa5f), (0xaa80, 0xaadf), (0xab30, 0xab6b), (0xabc0, 0xabf9),
          (0xac00, 0xd7a3), (0xf900, 0xfad9), (0xfb00, 0xfb4f), (0xfb50, 0xfdff), (0xfe20, 0xfe6f), (0xfe70, 0xfefc), (0xff01, 0xffee), (0x10000, 0x100fa),
          (0x10280, 0x1039d), (0x10400, 0x1049d), (0x10800, 0x10855), (0x10a00, 0x10a58), (0x10c00, 0x10c48), (0x11000, 0x1106f), (0x11080, 0x110c1),
          (0x12000, 0x12399), (0x13000, 0x1342e), (0x16800, 0x16a38), (0x1b000, 0x1b11e), (0x1d100, 0x1d1e8), (0x1d400, 0x1d7ff), (0x1e900, 0x1e95f),
          (0x1ee00, 0x1eef1), (0x1f000, 0x1f02b), (0x1f100, 0x1f2ff), (0x1f300, 0x1f64f), (0x1f680, 0x1f6ec), (0x1f900, 0x1f9ff), (0x20000, 0x2a6d6)]

# What is added to models' vocabularies, in texts too.
TOKENS = ["<s>", "</s>", "<unk>", "<pad>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<bos>", "<eos>", "<mask>",
          "[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "<extra_id_0>", "<start_of_turn>", "<|fim_prefix|>", "Yesterday", "yesterday", "<tool_call>", "\n\n\n",
          "<LEFT>", "<RIGHT>", "<WORD>", "\t\t"]


def word_of_script(draw):
    first, last = draw.choice(BLOCKS)
    return "".join(chr(draw.randint(first, last)) for _ in range(draw.randint(1, 9)))


def any_character(draw):
    code = draw.choice((draw.randint(0, 0x2ff), draw.randint(0, 0xd7ff), draw.randint(0xe000, 0x10ffff)))
    return chr(code)


def part(draw):
    kind = draw.randint(0, 15)
    if kind < 3:
        return draw.choice(WORDS)
    if kind < 6:
        words = draw.choice(SENTENCES).split(" ")
        at = draw.randint(0, len(words) - 1)
        return " ".join(words[at:at + draw.randint(1, 6)])
    if kind < 8:
        return word_of_script(draw)
    if kind == 8:
        return draw.choice(EMOJI)
    if kind == 9:
        return draw.choice(ODD)
    if kind == 10:
        return "".join(draw.choice("0123456789") for _ in range(draw.randint(1, 12)))
    if kind == 11:
        return draw.choice(TOKENS)
    if kind == 12:
        return "".join(draw.choice(ODD) for _ in range(draw.randint(1, 4)))
    if kind == 13:
        return any_character(draw)
    if kind == 14:
        return draw.choice(WORDS) * draw.randint(2, 9)
    return draw.choice(SPACES)


def line_of(draw):
    """The bytes of a line; one of eight has some that are not UTF-8."""
    text = "".join(part(draw) + (draw.choice(SPACES) if draw.random() < .7 else "") for _ in range(draw.randint(1, 9)))
    if draw.random() < .2:
        text = draw.choice(SPACES) + text
    data = bytearray(text.encode("utf-8"))
    if draw.random() < .125:
        for _ in range(draw.randint(1, 4)):
            at = draw.randint(0, len(data))
            kind = draw.randint(0, 2)
            if kind == 0:
                data[at:at] = bytes(draw.randint(128, 255) for _ in range(draw.randint(1, 3)))
            elif kind == 1:
                del data[at:at + 1]
            else:
                data[at:at] = draw.choice((b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xff\xfe", b"\xf8\x88\x80\x80\x80"))
    return bytes(data)


def lines_of(count, seed):
    draw = random.Random(seed)
    lines = [b"", b" ", b"a", b"\n", "é".encode(), b"\xff"] + [sentence.encode() for sentence in SENTENCES]
    lines += [line_of(draw) for _ in range(count)]
    return lines[:count]


def training_text(plain=False):
    """plain: with few characters, all of which Unigram needs in its vocabulary."""
    if plain:
        return [s for s in SENTENCES if max(s) < "\u0500"] * 20
    draw = random.Random(7)
    texts = SENTENCES * 20
    for _ in range(1500):
        texts.append("".join(part(draw) + draw.choice((" ", " ", "\n", "  ")) for _ in range(8)))
    return texts


# The models.


def special(content, **how):
    return AddedToken(content, special=True, normalized=False, **how)


def byte_level(size, split, specials, prefix=False, ignore_merges=False, normalizer=None, post=None, digits=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    steps = ([digits] if digits else []) + [pre_tokenizers.Split(Regex(s), "isolated", invert=False) for s in split]
    bytes_step = pre_tokenizers.ByteLevel(add_prefix_space=prefix, trim_offsets=True, use_regex=not split)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [bytes_step]) if steps else bytes_step
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=True)
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.add_special_tokens([special(s) for s in specials])
    tokenizer.post_processor = post(tokenizer) if post else processors.ByteLevel(trim_offsets=False)
    return tokenizer


def template(tokenizer, single, *names):
    return processors.TemplateProcessing(single=single, pair=f"{single} $B:1", special_tokens=[(n, tokenizer.token_to_id(n)) for n in names])


def gpt2(size):
    tokenizer = byte_level(size, [], ["<|endoftext|>"])
    return tokenizer


def roberta(size):
    tokenizer = byte_level(size, [], ["<s>", "<pad>", "</s>", "<unk>"], prefix=True)
    tokenizer.add_special_tokens([AddedToken("<mask>", special=True, lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("Yesterday", single_word=True), AddedToken("<RIGHT>", rstrip=True, normalized=False)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))
    return tokenizer


def llama3(size):
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    post = lambda t: processors.Sequence([processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=True),  # noqa: E731
                                          template(t, "<|begin_of_text|> $A", "<|begin_of_text|>")])
    return byte_level(size, [GPT4_SPLIT], specials, ignore_merges=True, post=post)


def qwen(size):
    tokenizer = byte_level(size, [QWEN_SPLIT], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizer=normalizers.NFC())
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("<|fim_prefix|>", normalized=False)])
    return tokenizer


def gpt4o(size):
    return byte_level(size, [GPT4O_SPLIT], ["<|endoftext|>", "<|im_start|>"])


def deepseek(size):
    return byte_level(size, DEEPSEEK_SPLITS, ["<s>", "</s>"])


def starcoder(size):
    return byte_level(size, [], ["<|endoftext|>", "<|fim_prefix|>"], digits=pre_tokenizers.Digits(individual_digits=True))


def fallback_bpe(size, specials, normalizer, pre=None):
    """BPE with metaspace and bytes: characters that are rare have no token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=size, limit_alphabet=300, show_progress=False,
                                  special_tokens=[*specials, *(f"<0x{b:02X}>" for b in range(256))])
    tokenizer.train_from_iterator((w for t in training_text() for w in t.replace(" ", " ▁").split(" ")), trainer)
    state = json.loads(tokenizer.to_str())
    # A trained file has bytes among its added tokens, where models have none of them.
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] in specials]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.normalizer = normalizer
    if pre:
        tokenizer.pre_tokenizer = pre
    return tokenizer


def llama2(size):
    tokenizer = fallback_bpe(size, ["<unk>", "<s>", "</s>"], normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]))
    tokenizer.post_processor = template(tokenizer, "<s> $A", "<s>")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def llama2_first(size):
    """As transformers converts it with legacy=False."""
    tokenizer = fallback_bpe(size, ["<unk>", "<s>", "</s>"], None)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.post_processor = template(tokenizer, "<s> $A </s>", "<s>", "</s>")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_tokens([AddedToken("Yesterday", normalized=True), AddedToken("<LEFT>", lstrip=True, normalized=False)])
    return tokenizer


def gemma(size):
    tokenizer = fallback_bpe(size, ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"], normalizers.Replace(" ", "▁"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous", invert=False)
    tokenizer.post_processor = template(tokenizer, "<bos> $A", "<bos>")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken("\n\n\n", normalized=False), AddedToken("\t\t", normalized=False), AddedToken("<start_of_turn>", special=True, normalized=False)])
    return tokenizer


def bert(size, lowercase=True):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=600,
                                        show_progress=False)
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.add_tokens([AddedToken("Yesterday", single_word=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")])
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return tokenizer


def bert_cased(size):
    tokenizer = bert(size, lowercase=False)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]")))
    return tokenizer


def charsmap(rules):
    """A compiled map of SentencePiece: nmt_nfkc, or one of rules (lines of hexadecimal code points, tab, the same)."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    with tempfile.TemporaryDirectory() as work:
        how = {"normalization_rule_name": "nmt_nfkc"}
        if rules:
            path = os.path.join(work, "rules.tsv")
            with open(path, "w", encoding="utf-8") as file:
                file.write(rules)
            how = {"normalization_rule_tsv": path}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d"] * 10), model_prefix=os.path.join(work, "m"), vocab_size=8, minloglevel=9, **how)
        model = sentencepiece_model_pb2.ModelProto()
        with open(os.path.join(work, "m.model"), "rb") as file:
            model.ParseFromString(file.read())
    return base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()


# What the recorded T5 has of nmt_nfkc: compositions of Latin letters, widths, ligatures, controls.
def small_rules():
    rows = []
    for code in [*range(1, 0x20), 0x7f, 0xa0, 0xad, *range(0xa8, 0x180), *range(0x2000, 0x2030), 0x2126, 0x212a, 0x3000, *range(0x2460, 0x2474),
                 *range(0xfb00, 0xfb07), *range(0xff01, 0xff5f)]:
        to = unicodedata.normalize("NFKC", chr(code)).strip("\x00")
        to = " " if chr(code) in "\t\n\r" else "" if code < 0x20 or code in (0x7f, 0xad) else to
        if to != chr(code):
            rows.append((chr(code), to))
    for letter in "aeiouAEIOUnNcC":
        for mark in "\u0300\u0301\u0302\u0303\u0308\u0327":
            made = unicodedata.normalize("NFC", letter + mark)
            if len(made) == 1:
                rows.append((letter + mark, made))
    return "".join("{}\t{}\n".format(" ".join(f"{ord(c):X}" for c in a), " ".join(f"{ord(c):X}" for c in b)) for a, b in rows)


def t5(size, rules=None):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(base64.b64decode(charsmap(rules))), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)])
    extra = [f"<extra_id_{i}>" for i in range(3)]
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(training_text(plain=True), trainer)
    tokenizer.add_special_tokens([special(e) for e in extra])
    tokenizer.post_processor = template(tokenizer, "$A </s>", "</s>")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return tokenizer


def xlnet(size):
    """Unigram with other steps: the kinds that no other model here has."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Nmt(), normalizers.NFKD(), normalizers.StripAccents(),
                                                 normalizers.Lowercase(), normalizers.Strip(left=True, right=True), normalizers.Replace(Regex("\\s+"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=False),
                                                       pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=True)])
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(training_text(plain=True), trainer)
    tokenizer.add_tokens([AddedToken("Yesterday", normalized=True), AddedToken("<WORD>", single_word=True, normalized=False)])
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="never", split=True)
    return tokenizer


def clip(size):
    """BPE with a suffix of words."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>", "<s>"], end_of_word_suffix="</w>", limit_alphabet=400, show_progress=False)
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


def splits(size):
    """WordLevel, with the behaviours of splits."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFD()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.CharDelimiterSplit("|"), pre_tokenizers.Split(Regex(r"\s+"), "merged_with_next", invert=False),
        pre_tokenizers.Split(Regex(r"[\w']+"), "removed", invert=True), pre_tokenizers.Split("'", "merged_with_previous", invert=False),
        pre_tokenizers.Split(Regex(r"\d"), "contiguous", invert=False), pre_tokenizers.FixedLength(3)])
    trainer = trainers.WordLevelTrainer(vocab_size=size, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(training_text(), trainer)
    return tokenizer


# Expressions whose syntax or meaning differs between Oniguruma and PCRE2, or is near to what does.
EXPRESSIONS = [
    r"\s", r"\S+", r"[^\s]+", r"[\s\d]+", r"[\S]+", r"[^\S]+", r"\w+", r"\W+", r"[\w']+", r"[^\w]+", r"\b", r"\B", r"\b\w+\b", r"\w\b",
    r"\h+", r"\H+", r"[\h-]+", r"\v", r"[\v\t]", r"\u0061+", r"[\u0061-\u0066]+", r"\x{61}", r"[\x{e9}\x{3042}-\x{3096}]+", r"\x41",
    r"\d+", r"\D+", r"a{2}", r"\p{L}{1,2}+", r"\d{2}+", r"\d{2,}+", r"\d{2}?", r"\d{1,3}?", r"\d{,2}", r"x{", r"a{1,2", r"}", r"]", r"\d++", r"\d?+", r"\p{L}*+",
    r".", r".+", r"(?m:.)+", r"(?m)a.", r"(?i)HELLO|the", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"(?i:ß)", r"(?-i:A)", r"(?i-m:a.)", r"^", r"$", r"^.", r".$", r"\A.", r".\z", r".\Z",
    r"\R", r"\N+", r"\O{3}", r"\p{L}+", r"\p{^L}+", r"\P{L}+", r"\p{Lu}", r"\p{Letter}+", r"\p{Decimal_Number}", r"\p{Nd}", r"\p{Han}+",
    r"\p{Greek}+", r"\p{Arabic}+", r"\p{Latin}+", r"\p{Common}", r"\p{Cyrillic}", r"\p{Hiragana}|\p{Katakana}", r"\p{Hangul}", r"\p{M}", r"\p{Mn}+", r"\p{P}", r"\p{S}", r"\p{Zs}+",
    r"\p{C}", r"\p{Cn}", r"\p{Emoji}", r"\p{Extended_Pictographic}", r"\p{Alphabetic}+", r"\p{Alpha}+", r"\p{White_Space}", r"\p{Uppercase}+", r"\p{Any}",
    r"[[:alpha:]]+", r"[[:digit:][:space:]]+", r"[^[:punct:]]+", r"[[:punct:]]", r"[[:upper:]]", r"[[:lower:]]+", r"[[:alnum:]_]+", r"[[:cntrl:]]", r"[[:blank:]]+", r"[[:xdigit:]]+", r"[[:word:]]+",
    r"[[:ascii:]]+", r"[a-c]|[x-z]", r"[^a-z]", r"[a\]b]", r"[\[\]]", r"[-a]", r"[a-]", r"[.*+?]", r"[\^a]", r"[\b]", r"[\n\r]+", r"\.", r"\-", r"\/", r"\ ", r"\#",
    r"(?=a)", r"a(?=b)", r"(?!\S)", r"\s+(?!\S)", r"(?<=a)b", r"(?<! )\w", r"(?>a+)b", r"(a)(b)?\1", r"(?<first>a)\k<first>", r"a|", r"a*", r"(?:)", r"()", r"b*|a", r"x?",
    r"(?#comment)a", r"日|人", r"é", r"👍", r" ?[^\s\p{L}\p{N}]+", r"\p{N}{1,3}(?=(?:\p{N}{3})*\b)", r"\s*[\r\n]+", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"(\p{L}|\p{N})+", r"\t", r"\f|\e|\a",
]


# Texts for them in which nothing depends on the version of Unicode.
EXPRESSION_TEXTS = ["1 12 123 12345 3.14 1,000 0xfF ½ ² ③ Ⅷ ٣٫١ १२ aa aab abab xyz {x{ a{1,2 ]}", "Hello THE the\tit's they'LL ſ'ſ é e\u0301 日本人 ひらカナ한국 ΑΒγ Жд عرب",
                    "\r\na.\n\n  ok \x0b\x0c\u0085\u00a0\u180e\u2028\u3000 _a-b_ (#)[^]\\/ 👍🏽 ▁ $+<=>^`|~ \u200b\u200d\x1b\x07\n", "aXbA\n"]


MODELS = {f.__name__: f for f in (gpt2, roberta, llama3, qwen, gpt4o, deepseek, starcoder, llama2, llama2_first, gemma, bert, bert_cased, t5, xlnet, clip, splits)}


# References and comparison.


def reference(tokenizer, data):
    text = data.decode("utf-8", "replace")
    ids, plain = (tokenizer.encode(text, add_special_tokens=s).ids for s in (True, False))
    return {"ids": ids, "plain": plain, "text": tokenizer.decode(ids, skip_special_tokens=False),
            "skipped": tokenizer.decode(ids, skip_special_tokens=True), "stream": stream_of(tokenizer, ids)}


def stream_of(tokenizer, ids):
    """What DecodeStream gives for each id, up to where it fails."""
    stream, given = decoders.DecodeStream(ids=[], skip_special_tokens=False), []
    for token in ids:
        try:
            given.append(stream.step(tokenizer, token) or "")
        except Exception:  # noqa: BLE001: "Invalid prefix": what it gave does not begin the text any more
            break
    return given


def run(program, tokenizer, lines):
    done = subprocess.run([program, tokenizer], input="".join(line.hex() + "\n" for line in lines), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tokenizer}: exit status {done.returncode}\n{done.stderr}")
    if done.stderr:
        print(done.stderr, file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(name, tokenizer, path, program, lines):
    results = run(program, path, lines)
    wrong = 0
    for line, got in zip(lines, results, strict=True):
        expected = reference(tokenizer, line)
        what = differences({**expected, "stream": [len(step) for step in expected["stream"]]}, got)
        what += ["stream"] * (got.get("stream", [])[:len(expected["stream"])] != expected["stream"])
        wrong += bool(what)
        if what and wrong <= 5:
            print(f"{name}: {what} of {line.decode('utf-8', 'replace')!r}")
            for key in what:
                print(f"    package {expected[key]}\n    rankc   {got.get(key, got)}")
    print(f"{name}: {len(lines)} lines, {sum(len(r.get('ids', ())) for r in results)} ids, {wrong} differ", flush=True)
    return wrong


def known_to(version, line):
    """The line without characters that are not in the Unicode of this Python, which is that of Debian 12's PCRE2."""
    return "".join(c for c in line.decode("utf-8", "replace") if version.category(c) != "Cn").encode()


def expressions(program, lines, work):
    wrong, refused = 0, []
    lines = [known_to(unicodedata, line) for line in lines]
    for expression in EXPRESSIONS:
        path = os.path.join(work, "expression.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(expression_tokenizer(expression), file)
        try:
            tokenizer = Tokenizer.from_file(path)
        except Exception as error:  # noqa: BLE001
            print(f"{expression}: the package refuses it: {error}")
            continue
        done = subprocess.run([program, path], input="".join(line.hex() + "\n" for line in lines), capture_output=True, text=True, check=False)
        if done.returncode:
            refused.append(f"{expression}: {done.stderr.splitlines()[0]}")
            continue
        for line, got in zip(lines, map(json.loads, done.stdout.splitlines()), strict=True):
            expected = tokenizer.encode(line.decode("utf-8")).ids
            if got.get("ids") != expected:
                wrong += 1
                print(f"{expression}: {line.decode('utf-8')!r}\n    package {expected}\n    rankc   {got.get('ids', got)}")
                break
    print(f"{len(EXPRESSIONS)} expressions, {len(lines)} lines, {wrong} differ; rankc refuses:", *refused, sep="\n    ")
    return wrong


# Random tokenizers: any parts together.

BEHAVIOURS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")


def random_pattern(draw):
    if draw.random() < .4:
        return {"String": draw.choice((" ", "a", "the", "▁", "  ", ".", "\n", "é", "'"))}
    return {"Regex": draw.choice((r"\s+", r"\w+", r"\d", r"[^a-z]+", r"(?<=a)", r"\p{L}+|\p{N}+", r" ?[^\s]+", r"x*", r"[aeiou]", r"\s+(?!\S)|\s+"))}


def random_normalizer(draw):
    kind = draw.choice(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Strip", "Replace", "Prepend", "BertNormalizer", "ByteLevel"))
    part = {"type": kind}
    if kind == "Strip":
        part |= {"strip_left": draw.random() < .5, "strip_right": draw.random() < .5}
    elif kind == "Replace":
        part |= {"pattern": random_pattern(draw), "content": draw.choice(("", " ", "▁", "xy", "é"))}
    elif kind == "Prepend":
        part |= {"prepend": draw.choice(("▁", " ", "ab"))}
    elif kind == "BertNormalizer":
        part |= {"clean_text": draw.random() < .5, "handle_chinese_chars": draw.random() < .5, "strip_accents": draw.choice((None, True, False)),
                 "lowercase": draw.random() < .5}
    return part


def random_metaspace(draw):
    return {"type": "Metaspace", "replacement": draw.choice("▁_"), "prepend_scheme": draw.choice(("always", "first", "never")), "split": draw.random() < .5}


def random_pre_tokenizer(draw):
    kind = draw.choice(("ByteLevel", "Split", "Split", "Metaspace", "Metaspace", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits", "BertPreTokenizer",
                        "CharDelimiterSplit", "FixedLength"))
    part = {"type": kind}
    if kind == "ByteLevel":
        part |= {"add_prefix_space": draw.random() < .5, "trim_offsets": True, "use_regex": draw.random() < .5}
    elif kind == "Split":
        part |= {"pattern": random_pattern(draw), "behavior": draw.choice(BEHAVIOURS), "invert": draw.random() < .3}
    elif kind == "Metaspace":
        part = random_metaspace(draw)
    elif kind == "Punctuation":
        part |= {"behavior": draw.choice(BEHAVIOURS)}
    elif kind == "Digits":
        part |= {"individual_digits": draw.random() < .5}
    elif kind == "CharDelimiterSplit":
        part |= {"delimiter": draw.choice(" a▁.")}
    elif kind == "FixedLength":
        part |= {"length": draw.randint(1, 6)}
    return part


def random_decoder(draw):
    kind = draw.choice(("ByteLevel", "Metaspace", "ByteFallback", "Fuse", "Strip", "Replace", "WordPiece", "BPEDecoder", "CTC"))
    part = {"type": kind}
    if kind == "Metaspace":
        part = random_metaspace(draw)
    elif kind == "Strip":
        part |= {"content": draw.choice(" ▁a"), "start": draw.randint(0, 2), "stop": 0}  # the package fails where a text is shorter than stop
    elif kind == "Replace":
        part |= {"pattern": random_pattern(draw), "content": draw.choice(("", " ", "xy"))}
    elif kind == "WordPiece":
        part |= {"prefix": draw.choice(("##", "", "a")), "cleanup": draw.random() < .5}
    elif kind == "BPEDecoder":
        part |= {"suffix": draw.choice(("</w>", "a", ""))}
    elif kind == "CTC":
        part |= {"pad_token": draw.choice(("<pad>", "a")), "word_delimiter_token": draw.choice(("|", "b")), "cleanup": draw.random() < .5}
    elif kind == "ByteLevel":
        part |= {"add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return part


def random_sequence(draw, kind, key):
    parts = [kind(draw) for _ in range(draw.choice((0, 1, 1, 2, 3)))]
    return None if not parts else parts[0] if len(parts) == 1 else {"type": "Sequence", key: parts}


def random_tokens(draw):
    """Texts that occur in lines, pieces of them and bytes."""
    characters = [chr(c) for c in range(32, 127)] + list("éàüñß▁ĠĊ日本人한글ЖдαβΩ") + [c for c in map(chr, range(0x100, 0x144))]
    words = [w for s in SENTENCES[:8] for w in s.split()] + WORDS
    pieces = {w[i:j] for w in draw.sample(words, 40) for i in range(len(w)) for j in range(i + 1, min(len(w), i + 5) + 1)}
    pieces |= {draw.choice(("▁", "##", "Ġ", "_")) + p for p in draw.sample(sorted(pieces), 60)} | {p + "</w>" for p in draw.sample(sorted(pieces), 30)}
    tokens = draw.sample(characters, draw.randint(90, len(characters))) + sorted(pieces)
    if draw.random() < .5:
        tokens += [f"<0x{b:02X}>" for b in range(256)]
    return ["<unk>", "<pad>", *dict.fromkeys(t for t in tokens if t not in ("<unk>", "<pad>"))]


def random_model(draw):
    tokens, kind = random_tokens(draw), draw.choice(("BPE", "BPE", "Unigram", "WordPiece", "WordLevel"))
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if kind == "Unigram":
        return {"type": kind, "unk_id": 0, "byte_fallback": draw.random() < .5, "vocab": [[token, -draw.randint(1, 400) / 16] for token in tokens]}
    if kind == "WordPiece":
        return {"type": kind, "unk_token": "<unk>", "continuing_subword_prefix": draw.choice(("##", "", "▁")), "max_input_chars_per_word": draw.choice((5, 100)),
                "vocab": vocabulary}
    if kind == "WordLevel":
        return {"type": kind, "unk_token": "<unk>", "vocab": vocabulary}
    prefix = draw.choice((None, None, "", "##"))
    merges = []
    for token in draw.sample(tokens, len(tokens)):
        for i in range(1, len(token)):
            if token[:i] in vocabulary and (prefix or "") + token[i:] in vocabulary and draw.random() < .6:
                merges.append([token[:i], (prefix or "") + token[i:]])
    merges = [list(m) for m in dict.fromkeys(map(tuple, merges))]
    return {"type": kind, "dropout": None, "unk_token": draw.choice(("<unk>", None)), "continuing_subword_prefix": prefix,
            "end_of_word_suffix": draw.choice((None, None, "</w>")), "fuse_unk": draw.random() < .5, "byte_fallback": draw.random() < .5,
            "ignore_merges": draw.random() < .3, "vocab": vocabulary, "merges": merges}


def random_added(draw):
    contents = draw.sample(TOKENS + ["a", "the", "  ", ".", "é", "日", "<unk>", "ab"], draw.randint(0, 7))
    flag = lambda chance: draw.random() < chance  # noqa: E731
    return [{"id": 5000 + i, "content": c, "single_word": flag(.3), "lstrip": flag(.3), "rstrip": flag(.3), "normalized": flag(.5), "special": flag(.5)}
            for i, c in enumerate(contents)]


def random_post(draw):
    kind = draw.choice((None, "TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"))
    if kind == "TemplateProcessing":
        pieces = [draw.choice(({"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}})) for _ in range(draw.randint(1, 4))]
        return {"type": kind, "single": pieces, "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1, 2], "tokens": ["<s>", "x"]}}}
    if kind == "BertProcessing":
        return {"type": kind, "sep": ["x", 1], "cls": ["y", 2]}
    if kind == "RobertaProcessing":
        return {"type": kind, "sep": ["x", 1], "cls": ["y", 2], "trim_offsets": False, "add_prefix_space": True}
    return kind and {"type": kind, "add_prefix_space": True, "trim_offsets": False, "use_regex": True}


def random_tokenizer(draw):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": random_added(draw),
            "normalizer": random_sequence(draw, random_normalizer, "normalizers"),
            "pre_tokenizer": random_sequence(draw, random_pre_tokenizer, "pretokenizers"), "post_processor": random_post(draw),
            "decoder": random_sequence(draw, random_decoder, "decoders"), "model": random_model(draw)}


# What rankc refuses: the package takes every character by itself, or either of the two tokens from one time to the next.
REFUSED = ("an added token of which normalization leaves nothing", "two added tokens are the same text when normalized")


def compare_random(program, count, seed, work):
    """The tokenizers give what the package gives, unless it refuses them or fails. The text of a stream is that of the package, step for
    step; with many decoders it is not that of all tokens at once."""
    wrong = cases = refusals = passed = 0
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        path = os.path.join(work, f"{number}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(random_tokenizer(draw), file)
        lines = [known_to(unicodedata, line_of(draw)) for _ in range(30)]
        try:
            tokenizer = Tokenizer.from_file(path)
        except BaseException:  # noqa: B902: panics of the package are no Exception
            refusals += 1
            continue
        done = subprocess.run([program, path], input="".join(line.hex() + "\n" for line in lines), capture_output=True, text=True, check=False)
        results = [json.loads(line) for line in done.stdout.splitlines()]
        if any(reason in done.stderr for reason in REFUSED):
            passed += 1
            continue
        if done.returncode:
            print(f"{seed} {number}: rankc refuses: {done.stderr}")
            wrong += 1
            continue
        for line, got in zip(lines, results, strict=True):
            try:
                expected = reference(tokenizer, line)
            except BaseException:  # noqa: B902
                continue
            cases += 1
            what = [key for key in ("ids", "plain", "text", "skipped") if expected[key] != got.get(key)]
            what += ["stream"] * (got.get("stream", [])[:len(expected["stream"])] != expected["stream"])
            if what:
                wrong += 1
                print(f"{seed} {number}: {what} of {line.decode('utf-8')!r}")
                for key in what:
                    print(f"    package {expected[key]}\n    rankc   {got.get(key, got)}")
                break
    print(f"{count} random tokenizers, of which the package refuses {refusals} and rankc {passed}; {cases} lines, {wrong} tokenizers differ")
    return wrong


def record_expressions(directory):
    with open(os.path.join(directory, "expressions.txt"), "w", encoding="ascii") as file:
        file.write(json.dumps([text.encode().hex() for text in EXPRESSION_TEXTS]) + "\n")
        for expression in EXPRESSIONS:
            try:
                tokenizer = Tokenizer.from_str(json.dumps(expression_tokenizer(expression)))
            except Exception:  # noqa: BLE001
                continue
            marks = [marks_of(tokenizer.encode(text).ids) for text in EXPRESSION_TEXTS]
            file.write(json.dumps([expression, marks], separators=(",", ":")) + "\n")


def record(directory, names):
    os.makedirs(directory, exist_ok=True)
    record_expressions(directory)
    for name in names:
        tokenizer = t5(400, small_rules()) if name == "t5" else MODELS[name](700)
        with open(os.path.join(directory, f"{name}.json"), "w", encoding="utf-8") as file:
            json.dump(json.loads(tokenizer.to_str()), file, ensure_ascii=True, separators=(",", ":"))
        with open(os.path.join(directory, f"{name}.jsonl"), "w", encoding="ascii") as file:
            for line in lines_of(25, 1)[:10] + lines_of(60, name)[-18:]:
                case = reference(tokenizer, line)
                case["stream"] = [len(step) for step in case["stream"]]
                file.write(json.dumps({"line": line.hex(), **case}, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenize")
    parser.add_argument("--record")
    parser.add_argument("--expressions", action="store_true")
    parser.add_argument("--random", type=int, metavar="N")
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=3000)
    parser.add_argument("--keep", help="a directory for the tokenizers that are trained, which are used again from there")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    names = args.names or list(MODELS)
    if args.record:
        record(args.record, names)
        return 0
    lines, wrong = lines_of(args.lines, args.seed), 0
    print(f"tokenizers {tokenizers.__version__}, seed {args.seed}")
    with tempfile.TemporaryDirectory() as work:
        if args.random:
            return 1 if compare_random(args.tokenize, args.random, args.seed, work) else 0
        if args.expressions:
            return 1 if expressions(args.tokenize, lines, work) else 0
        for name in names:
            path = os.path.join(args.keep or work, f"{name}.json")
            if not os.path.exists(path):
                MODELS[name](args.size).save(path)
            wrong += compare(name, Tokenizer.from_file(path), path, args.tokenize, lines)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
