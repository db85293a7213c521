#!/usr/bin/env python3
"""Writes sentences/: what sentence-transformers makes of texts with bert/bert_model and a small vocabulary: every
pooling, and a chain of two poolings, a Dense and a Normalize. Needs sentence-transformers 6.2. Deterministic by seed."""
import json
import pathlib
import shutil
import tempfile

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

HERE = pathlib.Path(__file__).resolve().parent
WORDS = ("a b c d e f g h i j k l m n o p q r s t u v w x y z ##a ##e ##s ##ing the film good bad cat dog "
         ". , ! ?").split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS[:40]
TEXTS = ["The cat.", "good film, good dog!", "", "a bad, bad film and the dogs sing of it all night long, is it?", "x"]


def main():
    folder = HERE / "sentences"
    folder.mkdir(exist_ok=True)
    torch.manual_seed(20261129)
    with tempfile.TemporaryDirectory() as name:
        body = pathlib.Path(name)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(HERE / "bert" / "bert_model" / file, body)
        (body / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        (body / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "model_max_length": 16}\n')
        expected = {}
        for mode in Pooling.POOLING_MODES:
            transformer = Transformer(str(body), max_seq_length=12)
            model = SentenceTransformer(modules=[transformer, Pooling(24, mode)], device="cpu")
            expected[mode] = model.encode(TEXTS, convert_to_tensor=True)
        dense = Dense(48, 7, activation_function=torch.nn.Tanh())
        model = SentenceTransformer(
            modules=[Transformer(str(body), max_seq_length=12), Pooling(24, ("mean", "max")), dense, Normalize()],
            device="cpu")
        expected["chain"] = model.encode(TEXTS, convert_to_tensor=True)
        expected["cosine"] = model.similarity_pairwise(expected["mean"], expected["max"])
        model.save(str(body / "saved"))
        for file in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling",
                     "2_Dense", "3_Normalize"):
            source = body / "saved" / file
            if source.is_dir():
                shutil.copytree(source, folder / file, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, folder)
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        (folder / "texts.json").write_text(json.dumps(TEXTS) + "\n")
        save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    main()
