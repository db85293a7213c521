"""Reference numbers for Vision Transformers from transformers, torchvision and timm: logits and gradients."""
import copy

import timm
import torch
import torchvision
import transformers
from safetensors.torch import save_file

from golden_ops import relative_error


def hugging_face(**options):
    model = transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50, image_size=24, patch_size=6,
        num_labels=5, initializer_range=0.1, **options))
    # The names of the file, which are not those in memory.
    names = {"vit.layers.": "vit.encoder.layer.", "attention.q_proj": "attention.attention.query",
             "attention.k_proj": "attention.attention.key", "attention.v_proj": "attention.attention.value",
             "attention.o_proj": "attention.output.dense", "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}

    def rename(name):
        for old, new in names.items():
            name = name.replace(old, new)
        return name

    return model, lambda x, **kw: model(x, **kw).logits, rename


def from_torchvision():
    model = torchvision.models.VisionTransformer(24, 6, 2, 3, 36, 50, num_classes=5)
    return model, lambda x: model(x), lambda name: name


def from_timm(**options):
    model = timm.models.VisionTransformer(img_size=24, patch_size=6, embed_dim=36, depth=2, num_heads=3, mlp_ratio=1.5,
                                          num_classes=5, **options)
    return model, lambda x: model(x), lambda name: name


MODELS = {
    "vit_hf": lambda: hugging_face(),
    "vit_hf_relu_no_bias": lambda: hugging_face(hidden_act="relu", qkv_bias=False),
    "vit_torchvision": from_torchvision,
    "vit_timm": lambda: from_timm(),
    "vit_timm_mean": lambda: from_timm(global_pool="avg", class_token=False),
    "vit_timm_mean_cls": lambda: from_timm(global_pool="avg"),
}


def results_of(model, call, images, labels, rename):
    model.zero_grad()
    logits = call(images)
    loss = torch.nn.functional.cross_entropy(logits, labels)
    loss.backward()
    gradients = {f"grad/{rename(name)}": p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits.detach(), "loss": loss.detach()}, gradients


def write_model(folder, name):
    model, call, rename = MODELS[name]()
    with torch.no_grad():  # also where the library starts from 0 or 1, so that no term is silent
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    model.eval()
    if name.startswith("vit_hf"):
        model.save_pretrained(folder)
    else:
        save_file(model.state_dict(), str(folder / "model.safetensors"))
    images, labels = torch.randn(7, 3, 24, 24), torch.randint(0, 5, (7,))
    outputs32, gradients32 = results_of(model, call, images, labels, rename)
    model.double()
    outputs, gradients = results_of(model, call, images.double(), labels, rename)
    if name == "vit_hf":
        with torch.no_grad():
            other = torch.randn(2, 3, 36, 18)
            outputs["other_images"] = other
            outputs["other_logits"] = call(other.double(), interpolate_pos_encoding=True)
            model.set_attn_implementation("eager")
            attention = model(images.double(), output_attentions=True).attentions
            outputs["attention"] = torch.stack(attention)[:, :2].float()
    error = max([relative_error(outputs32[key], outputs[key], {}) for key in outputs32]
                + [relative_error(gradients32[key], gradients[key], gradients) for key in gradients])
    save_file({key: value.contiguous() for key, value in
               ({"images": images, "labels": labels} | outputs | gradients).items()},
              str(folder / "expected.safetensors"))
    return {"folder": folder.name, "float32_error": error}
