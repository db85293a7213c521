#!/usr/bin/env python3
"""Writes bert/: small BERT and RoBERTa folders with each head, as transformers' save_pretrained writes them, and what
transformers computes with them in float64: logits, hidden states, a loss with every gradient, and the losses of 20
training steps. Deterministic by seed."""
import pathlib

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent / "bert"
LENGTHS = (7, 3, 10, 1)
STEPS = 20
SIZES = dict(vocab_size=45, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
             max_position_embeddings=16, layer_norm_eps=1e-6, initializer_range=0.3, num_labels=3)
HEADS = {"Model": "model", "ForSequenceClassification": "classifier", "ForTokenClassification": "tagger",
         "ForMaskedLM": "masked"}


def batch_of(roberta):
    padding = 1 if roberta else 0
    ids = torch.full((len(LENGTHS), max(LENGTHS)), padding)
    mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, length in enumerate(LENGTHS):
        ids[row, :length] = torch.randint(2, SIZES["vocab_size"], (length,))
        mask[row, :length] = 1
        if not roberta:
            types[row, length // 2:length] = 1
    ids[2, 4] = padding  # a padding token in a text: RoBERTa does not count it
    return ids, mask, types


def make(roberta, ending, folder):
    name = "Roberta" if roberta else "Bert"
    config = getattr(transformers, name + "Config")(**SIZES, type_vocab_size=1 if roberta else 2,
                                                    pad_token_id=1 if roberta else 0,
                                                    hidden_act="relu" if roberta else "gelu")
    config._attn_implementation = "eager"
    model = getattr(transformers, name + ending)(config).eval()
    for parameter in model.parameters():  # biases and norms too
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    reference = getattr(transformers, name + ending).from_pretrained(folder, attn_implementation="eager").double().eval()
    ids, mask, types = batch_of(roberta)
    given = dict(input_ids=ids, attention_mask=mask, token_type_ids=types)
    output = reference(**given, output_hidden_states=True)
    expected = dict(given)
    expected["last_hidden_state"] = output.hidden_states[-1]
    if ending == "Model":
        logits, labels = output.pooler_output, torch.randint(0, SIZES["hidden_size"], (len(LENGTHS),))
    else:
        logits = output.logits
        labels = torch.randint(0, logits.shape[-1], logits.shape[:-1])
        if logits.dim() == 3:
            labels[mask == 0] = -100
    expected |= {"logits": logits, "labels": labels}

    def loss_of(values):
        return torch.nn.functional.cross_entropy(values.reshape(-1, values.shape[-1]), labels.reshape(-1))
    loss = loss_of(logits)
    loss.backward()
    expected["loss"] = loss
    for key, parameter in reference.named_parameters():
        if parameter.grad is not None:
            expected["grad/" + key] = parameter.grad.clone()
    optimizer = torch.optim.AdamW(reference.parameters(), lr=1e-3, weight_decay=0)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        result = reference(**given)
        loss = loss_of(result.pooler_output if ending == "Model" else result.logits)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    expected["losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file({key: value.detach().contiguous().to(torch.float32 if key.startswith("grad/") else value.dtype)
               for key, value in expected.items()}, folder / "expected.safetensors")


def main():
    for roberta in (False, True):
        for ending, head in HEADS.items():
            torch.manual_seed(20261129 + roberta)
            folder = HERE / (("roberta_" if roberta else "bert_") + head)
            folder.mkdir(parents=True, exist_ok=True)
            make(roberta, ending, folder)
            print(folder)


if __name__ == "__main__":
    main()
