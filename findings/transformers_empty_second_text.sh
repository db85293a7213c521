#!/usr/bin/env bash
# transformers takes an empty second text for none when a tokenizer is called with one pair, but not with lists of pairs.
#
# Packages: transformers 5.24.0, tokenizers 0.23.3 (PyPI), Python 3, x86-64; no model is fetched.
# Seen: with BERT's template, tokenizer("a", "") gives [CLS] a [SEP], as tokenizer("a") does, while tokenizer(["a"], [""])
# gives [CLS] a [SEP] [SEP] with the last token of type 1, as tokenizers' encode("a", "") does.
# Expected: one pair and a list of that pair have the same ids.
# Why it matters: a column of second texts has empty cells. Rows that are scored one at a time get other ids, and so other
# logits, than the same rows in a batch or in training.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0 tokenizers==0.23.3
cat >"$work/run.py" <<'PYTHON'
import logging

logging.disable(logging.CRITICAL)
import tokenizers
import transformers

vocabulary = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "a": 4}
rust = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
rust.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
rust.post_processor = tokenizers.processors.TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
python = transformers.PreTrainedTokenizerFast(tokenizer_object=rust, unk_token="[UNK]", pad_token="[PAD]")
print("transformers", transformers.__version__, "tokenizers", tokenizers.__version__)


def say(name, ids, types):
    print(name, *[list(vocabulary)[i] for i in ids], "| types", *types)


one = python("a", "", return_token_type_ids=True)
say("one pair:", one["input_ids"], one["token_type_ids"])
many = python(["a"], [""], return_token_type_ids=True)
say("a list of it:", many["input_ids"][0], many["token_type_ids"][0])
direct = rust.encode("a", "")
say("tokenizers:", direct.ids, direct.type_ids)
PYTHON
"$work/venv/bin/python" "$work/run.py" | tee "$work/out"
diff "$work/out" - <<'SEEN'
transformers 5.24.0 tokenizers 0.23.3
one pair: [CLS] a [SEP] | types 0 0 0
a list of it: [CLS] a [SEP] [SEP] | types 0 0 0 1
tokenizers: [CLS] a [SEP] [SEP] | types 0 0 0 1
SEEN
echo "as seen"
