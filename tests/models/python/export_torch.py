"""Exports networks with PyTorch's exporter into a folder, with what PyTorch computes: export_torch.py FOLDER

NAME.onnx is exported as by default, NAME.in*.npy and NAME.out*.npy are inputs and outputs. NAME.losses.npy are the losses
of 20 steps of SGD on these inputs and NAME.labels.npy, by the network in NAME.onnx or, where batch norms are trained, in
NAME.train.onnx, which keeps them as nodes (optimize=False). networks.json lists the networks."""

import json
import logging
import pathlib
import sys
import warnings

try:
    import numpy
    import onnxscript  # noqa: F401
    import torch
    import torchvision
    import transformers
except ImportError as missing:
    print(missing)
    sys.exit(77)

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
transformers.logging.disable_progress_bar()
folder = pathlib.Path(sys.argv[1])
nn, functional = torch.nn, torch.nn.functional
classes, steps = 5, 20


class Outputs(nn.Module):
    """A network of transformers with inputs by position and a tuple of outputs."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs)), return_dict=True).logits


class Cached(nn.Module):
    """GPT-2 with the keys and values of two layers in and out."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask, k0, v0, k1, v1):
        cache = transformers.DynamicCache()
        for layer, (keys, values) in enumerate([(k0, v0), (k1, v1)]):
            cache.update(keys, values, layer)
        out = self.model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, return_dict=True)
        kept = out.past_key_values
        return (out.logits, *[x for layer in kept.layers for x in (layer.keys, layer.values)])


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.steps = kind(12, 10, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(20, classes)

    def forward(self, ids):
        return self.head(self.steps(self.words(ids))[0].mean(1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()

        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())

        self.down1, self.down2, self.up1 = block(3, 8), block(8, 16), block(24, 8)
        self.up, self.head = nn.ConvTranspose2d(16, 16, 2, 2), nn.Conv2d(8, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = functional.max_pool2d(a, 2)
        c = self.up(self.down2(b))
        d = functional.interpolate(self.down2(b), scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.up1(torch.cat([a, c + d], 1)))


def lively(model, inputs):
    """Weights with which outputs are not almost equal: a new network of transformers or torchvision gives almost 0."""
    for module in model.modules():
        for name in ("p", "dropout", "dropout_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)) and module.weight is not None:
            nn.init.uniform_(module.weight, 0.6, 1.4)
            nn.init.normal_(module.bias, 0, 0.2)
    model.train()
    with torch.no_grad():
        for _ in range(12):  # running statistics
            model(*inputs)
        out = model(*inputs)
        out = out[0] if isinstance(out, tuple) else out
        if out.std() < 0.5:
            last = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))][-1]
            if last.weight.abs().max() == 0:  # of torchvision's ViT
                nn.init.normal_(last.weight, 0, 0.3)
            else:
                last.weight.mul_(0.5 / out.std().clamp(min=1e-6))


def images(size):
    return (torch.randn(6, 3, size, size),)


def texts(vocabulary, types=False):
    ids = torch.randint(1, vocabulary, (6, 9))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    mask[4, 2:] = 0
    return (ids, mask) + ((torch.randint(0, 2, ids.shape),) if types else ())


def cache_inputs():
    past = [torch.randn(2, 2, 4, 8) for _ in range(4)]
    return (torch.randint(1, 40, (2, 3)), torch.ones(2, 7, dtype=torch.int64), *past)


small = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, num_labels=classes,
             vocab_size=60, max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
names = ["input_ids", "attention_mask", "token_type_ids"]
models = torchvision.models
networks = {
    "resnet18": (lambda: models.resnet18(num_classes=classes), images(64), 0.003),
    "mobilenet_v3": (lambda: models.mobilenet_v3_small(num_classes=classes), images(64), 0.002),
    "efficientnet_b0": (lambda: models.efficientnet_b0(num_classes=classes, stochastic_depth_prob=0.0), images(64), 0.0002),
    "unet": (UNet, images(16), 0.1),
    "vit": (lambda: models.VisionTransformer(32, 8, 2, 3, 24, 48, num_classes=classes), images(32), 0.02),
    "bert": (lambda: Outputs(transformers.BertForSequenceClassification(transformers.BertConfig(**small)), names),
             texts(60, True), 0.05),
    "distilbert": (lambda: Outputs(transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(
        dim=24, n_layers=2, n_heads=3, hidden_dim=40, vocab_size=60, max_position_embeddings=16, num_labels=classes,
        dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0)), names), texts(60), 0.05),
    "lstm": (lambda: Recurrent(nn.LSTM), (torch.randint(0, 50, (6, 9)),), 0.3),
    "gru": (lambda: Recurrent(nn.GRU), (torch.randint(0, 50, (6, 9)),), 0.3),
    "gpt2": (lambda: Cached(transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, vocab_size=40, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0))), cache_inputs(), 0),
}
rows = []
print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, transformers {transformers.__version__}")
for name, (make, inputs, rate) in networks.items():
    torch.manual_seed(len(rows))
    model = make()
    lively(model, inputs)
    normed = any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    # A dimension of the batch, and of the lengths of texts.
    batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=2)
    is_text = inputs[0].dtype == torch.int64
    shapes = tuple({0: batch, 1: length} if is_text else {0: batch} for _ in inputs)
    shapes = None if name == "gpt2" else ((shapes,) if isinstance(model, Outputs) else shapes)

    def export(target, **options):
        torch.onnx.export(model, inputs, str(folder / target), dynamo=True, dynamic_shapes=shapes, external_data=False,
                          verbose=False, **options)

    model.eval()
    export(f"{name}.onnx")
    with torch.no_grad():
        outputs = model(*inputs)
    for i, x in enumerate(inputs):
        numpy.save(folder / f"{name}.in{i}.npy", x.numpy())
    for i, x in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
        numpy.save(folder / f"{name}.out{i}.npy", x.numpy())
    rows.append({"name": name, "inputs": len(inputs), "rate": rate, "normed": normed})
    if rate == 0:
        continue
    if normed:
        export(f"{name}.train.onnx", optimize=False)
    model.train()
    labels = torch.randint(0, classes, outputs.shape[:1] + outputs.shape[2:])
    numpy.save(folder / f"{name}.labels.npy", labels.numpy())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        loss = functional.cross_entropy(model(*inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    numpy.save(folder / f"{name}.losses.npy", numpy.array(losses))
    print(f"{name}: outputs up to {outputs.abs().max():.2f}, losses {losses[0]:.4f} to {losses[-1]:.4f}")
(folder / "networks.json").write_text(json.dumps(rows))
