"""Reference numbers for whole models, from Hugging Face's transformers: logits, gradients and loss curves."""
import copy
import math

import torch
import transformers
from safetensors.torch import save_file

from golden_ops import relative_error

MODELS = {
    "distilbert_gelu": dict(
        vocab_size=200, dim=48, n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=64, num_labels=3,
        activation="gelu", sinusoidal_pos_embds=False, initializer_range=0.1),
    "distilbert_relu": dict(
        vocab_size=101, dim=36, n_layers=1, n_heads=3, hidden_dim=50, max_position_embeddings=40, num_labels=2,
        activation="relu", sinusoidal_pos_embds=True, initializer_range=0.1),
}


def make_model(options):
    """Random weights, also where transformers would start from 0 or 1, so that no term is silent."""
    model = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(**options))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name:
                parameter.add_(0.1 * torch.randn(parameter.shape))
    return model.eval()


def make_batch(options, lengths):
    """ids [batch, longest], mask and labels; padded positions hold 0."""
    longest = max(lengths)
    mask = (torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(1, options["vocab_size"], mask.shape) * mask
    labels = torch.randint(0, options["num_labels"], (len(lengths),))
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def results_of(model, batch):
    model.zero_grad()
    hidden = model.distilbert(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    out = model(**batch)
    out.loss.backward()
    gradients = {f"grad/{name}": parameter.grad.clone() for name, parameter in model.named_parameters()
                 if parameter.grad is not None}
    # What stands at a padded position is of no interest: zero, so that it can be compared or skipped.
    hidden = hidden * batch["attention_mask"][:, :, None]
    return {"logits": out.logits.detach(), "loss": out.loss.detach(), "last_hidden_state": hidden.detach()}, gradients


def write_model(folder, options, lengths):
    model = make_model(options)
    model.save_pretrained(folder)
    batch = make_batch(options, lengths)
    outputs, gradients = results_of(copy.deepcopy(model).double(), batch)
    outputs32, gradients32 = results_of(model, batch)
    error = max([relative_error(outputs32[key], outputs[key], {}) for key in outputs]
                + [relative_error(gradients32[key], gradients[key], gradients) for key in gradients])
    save_file({key: value.contiguous() for key, value in (batch | outputs | gradients).items()},
              str(folder / "expected.safetensors"))
    return {"folder": folder.name, "lengths": lengths, "float32_error": error,
            "files": ["config.json", "model.safetensors", "expected.safetensors"]}


def decayed(name):
    """Weight decay is for matrices: not for biases nor LayerNorm's weights."""
    return not (name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name)


def optimizer_and_schedule(model, lr, weight_decay, warmup, steps, schedule):
    groups = [{"params": [p for n, p in model.named_parameters() if p.requires_grad and decayed(n)],
               "weight_decay": weight_decay},
              {"params": [p for n, p in model.named_parameters() if p.requires_grad and not decayed(n)],
               "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr)
    return optimizer, transformers.get_scheduler(schedule, optimizer, warmup, steps)


def train(model, batches, steps, lr, weight_decay, clip, warmup, schedule, report=lambda record: None):
    """Steps over `batches` in turn, without dropout (the caller's model is in eval mode). Returns one record a step."""
    optimizer, scheduler = optimizer_and_schedule(model, lr, weight_decay, warmup, steps, schedule)
    records = []
    for step in range(steps):
        loss = model(**batches[step % len(batches)]).loss
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip) if clip > 0 else torch.nn.utils.get_total_norm(
            [p.grad for p in model.parameters() if p.grad is not None])
        records.append({"step": step + 1, "loss": float(loss.detach()), "lr": scheduler.get_last_lr()[0],
                        "grad_norm": float(norm)})
        report(records[-1])
        optimizer.step()
        scheduler.step()
    return records


def write_loss_curve(folder, model_folder, options, count=5):
    """100 steps from model_folder's weights over `count` batches of 8; the label follows from the second token."""
    hyper = dict(steps=100, lr=1e-3, weight_decay=0.01, clip=1.0, warmup=10, schedule="linear")
    batches = []
    for _ in range(count):
        lengths = torch.randint(2, 41, (8,)).tolist()
        batch = make_batch(options, lengths)
        batch["labels"] = batch["input_ids"][:, 1] % options["num_labels"]
        batches.append(batch)
    named = {f"batch{i}/{key}": value.contiguous() for i, batch in enumerate(batches) for key, value in batch.items()}
    save_file(named, str(folder / "batches.safetensors"))
    curves, norms = {}, {}
    for dtype in (torch.float64, torch.float32):
        model = transformers.DistilBertForSequenceClassification.from_pretrained(model_folder).to(dtype).eval()
        curves[dtype] = train(model, batches, **hyper)
        norms[dtype] = {name: float(p.detach().double().norm()) for name, p in model.named_parameters()}
    exact, single = curves[torch.float64], curves[torch.float32]
    difference = max(abs(a["loss"] - b["loss"]) for a, b in zip(exact, single))
    norm_difference = max(abs(norms[torch.float32][name] - norm) / norm for name, norm in norms[torch.float64].items()
                          if "k_lin.bias" not in name)
    curve = {"model": model_folder.name, "batches": count, "batch_size": 8, "hyper": hyper,
             "betas": [0.9, 0.999], "eps": 1e-8,
             "no_decay": [n for n, _ in model.named_parameters() if not decayed(n)],
             "losses": [r["loss"] for r in exact], "losses_float32": [r["loss"] for r in single],
             "learning_rates": [r["lr"] for r in exact], "grad_norms": [r["grad_norm"] for r in exact],
             "final_norms": norms[torch.float64],
             "float32_loss_difference": difference, "float32_norm_relative_difference": norm_difference}
    return curve
