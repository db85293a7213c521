#!/usr/bin/env python3
"""PyTorch's half of the comparison: the baseline of tern-bench-train, which it answers as a benchmark program does.

  pytorch_side.py --serve --threads 2            started by tern-bench-train --baseline (protocol: bench/side.h)
  pytorch_side.py --rows ROW,... --seconds 10    measures alone, a line of JSON for each row; gemm: the matrix rate
Hugging Face's DistilBertForSequenceClassification with its default attention (sdpa), or timm's VisionTransformer (which
is faster than Hugging Face's), with random weights; fp32 and eager unless asked for more: bf16 is autocast, fp16
autocast with a GradScaler. A training step is forward, backward, clipping to norm 1 and fused AdamW, with dropout 0.1.
A row is a function that returns a step, which returns its number of items: tokens or images, never padding.
"""
import argparse
import json
import math
import multiprocessing
import os
import pathlib
import random
import statistics
import sys
import time

from pytorch_ops import OPS, TRAINED_OPS

SIZES = {"base": (768, 6, 12), "small": (256, 4, 4), "tiny": (128, 2, 2)}  # width, layers, heads
SETTING = argparse.Namespace(device="cpu", dtype="fp32", compile=False, threads=1)  # from the command line
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
REVIEWS = 1000  # evenly spread over the sorted paths of the training set


def make_model(size, train):
    import torch
    import transformers
    dim, layers, heads = SIZES[size]
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(dim=dim, n_layers=layers, n_heads=heads, hidden_dim=4 * dim, num_labels=2,
                                           vocab_size=30522, max_position_embeddings=512, dropout=0.1,
                                           attention_dropout=0.1, seq_classif_dropout=0.1)
    model = transformers.DistilBertForSequenceClassification(config).train(train).to(SETTING.device)
    return torch.compile(model) if SETTING.compile else model


def autocast():
    import torch
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[SETTING.dtype]
    return torch.autocast(SETTING.device, dtype, enabled=SETTING.dtype != "fp32")


def on_device(batch):
    return {name: tensor.to(SETTING.device, non_blocking=True) for name, tensor in batch.items()}


def cpu_time():
    """Processor seconds of this process and its living children, the loaders' workers."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])  # user and system
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


class Timed:
    """A step, warmed up; a sample takes at least 10 ms, like Tern's (bench/timing.cpp)."""

    def __init__(self, step):
        self.step, self.steps = step, 1
        for _ in range(2):
            step()
        while (seconds := self.sample()["seconds"]) < 0.01:
            self.steps = math.ceil(self.steps * min(max(0.012 / max(seconds, 1e-9), 1.2), 10))

    def sample(self):
        cpu_start, start = cpu_time(), time.perf_counter()
        items = sum(self.step() for _ in range(self.steps))
        return {"items": items, "seconds": time.perf_counter() - start, "cpu_seconds": cpu_time() - cpu_start}


def measure(step, seconds):
    timed, samples = Timed(step), []
    while sum(sample["seconds"] for sample in samples) < seconds or len(samples) < 3:
        samples.append(timed.sample())
    items = sum(sample["items"] for sample in samples)
    return {"seconds": sum(sample["seconds"] for sample in samples) / items,
            "cpu_seconds": sum(sample["cpu_seconds"] for sample in samples) / items,
            "per_second": items / sum(sample["seconds"] for sample in samples), "samples": len(samples)}


def training_step(model, loss_of=lambda model, batch: model(**batch).loss):
    import torch
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    scaler = torch.amp.GradScaler(SETTING.device, enabled=SETTING.dtype == "fp16")

    def step(**batch):
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = loss_of(model, on_device(batch))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    return step


def full_length(kind, size, batch, length):
    """Batches without padding, so no mask is given: PyTorch's fastest path."""
    import torch
    model = make_model(size, train=kind == "train")
    batches = [{"input_ids": torch.randint(0, 30522, (batch, length))} for _ in range(8)]
    train = training_step(model)
    count = iter(range(1 << 62))

    def step():
        ids = batches[next(count) % len(batches)]
        if kind == "train":
            train(**ids, labels=ids["input_ids"][:, 0] % 2)
        else:
            with torch.inference_mode(), autocast():
                model(**on_device(ids)).logits.sum().item()
        return batch * length

    return step


def gpt(_, __, batch, length):
    import torch
    from pytorch_gpt import make_gpt
    torch.manual_seed(0)
    model = make_gpt().to(SETTING.device)
    model = torch.compile(model) if SETTING.compile else model
    train = training_step(model, lambda model, data: torch.nn.functional.cross_entropy(
        model(data["ids"]).flatten(0, 1), data["ids"].flatten()))
    ids = torch.randint(0, 65, (batch, length))

    def step():
        train(ids=ids)
        return batch * length

    return step


def op(name, training, rows, columns):
    """A call as bench/train/op_rows.cpp makes it: without gradients, or with those of both arguments."""
    import torch
    x, y, row = torch.randn(rows, columns), torch.randn(rows, columns), torch.randn(columns)
    function = OPS[name]

    def forward():
        with torch.no_grad():
            function(torch, x, y, row)
        return 1

    def train():
        function(torch, x, y, row).backward(y)
        x.grad = row.grad = None
        return 1

    if training:
        x.requires_grad_(), row.requires_grad_()
    return train if training else forward


def make_vit(train):
    """Tern's preset tiny: 192 wide, 9 layers, 3 heads, patches of 4 x 4."""
    import timm
    import torch
    torch.manual_seed(0)
    model = timm.models.vision_transformer.VisionTransformer(
        img_size=32, patch_size=4, num_classes=10, embed_dim=192, depth=9, num_heads=3, pos_drop_rate=0.1,
        proj_drop_rate=0.1, attn_drop_rate=0.1).train(train).to(SETTING.device)
    return torch.compile(model) if SETTING.compile else model


def make_cnn(name, size, train):
    """torchvision's, without dropout; below 64 pixels a ResNet begins with a convolution of 3 x 3 and no pooling."""
    import torch
    import torchvision
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(num_classes=10)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0
    if size < 64:
        model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        model.maxpool = torch.nn.Identity()
    model = model.to(memory_format=torch.channels_last).train(train).to(SETTING.device)
    return torch.compile(model) if SETTING.compile else model


def images(kind, name, batch, size):
    import torch
    train = kind == "train-images"
    model = make_vit(train) if name == "vit" else make_cnn(name, size, train)
    batches = [torch.randn(batch, 3, size, size, device=SETTING.device) for _ in range(8)]
    if name != "vit":
        batches = [x.to(memory_format=torch.channels_last) for x in batches]
    labels = torch.arange(batch) % 10
    learn = training_step(model, lambda model, data: torch.nn.functional.cross_entropy(model(data["x"]), data["y"]))
    count = iter(range(1 << 62))

    def step():
        x = batches[next(count) % len(batches)]
        if train:
            learn(x=x, y=labels)
        else:
            with torch.inference_mode(), autocast():
                model(x.to(SETTING.device)).sum().item()
        return batch

    return step


def data_folder():
    folder = pathlib.Path(os.environ.get("TERN_DATA", "data"))
    if not (folder / "aclImdb").is_dir():
        raise SystemExit(f"pytorch_side: {folder}/aclImdb not found: set TERN_DATA to the folder that holds it")
    return folder


def read_reviews():
    """REVIEWS texts and labels, every 25th of the 25,000 sorted paths aclImdb/train/{neg,pos}/*.txt."""
    train = data_folder() / "aclImdb/train"
    paths = [path for kind in ("neg", "pos") for path in sorted((train / kind).glob("*.txt"))]
    paths = paths[::max(1, len(paths) // REVIEWS)][:REVIEWS]
    return [path.read_text(encoding="utf-8") for path in paths], [int(path.parent.name == "pos") for path in paths]


def make_tokenizer():
    from tokenizers import BertWordPieceTokenizer, Tokenizer
    folder = data_folder() / "bert-base-uncased"
    if not (folder / "tokenizer.json").exists():
        return BertWordPieceTokenizer(str(folder / "vocab.txt"))._tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def imdb(_, size, batch, longest):
    import torch
    texts, labels = read_reviews()
    tokenizer = make_tokenizer()
    tokenizer.enable_truncation(longest)
    rows = [torch.tensor(encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    train = training_step(make_model(size, train=True))
    order, rng = [], random.Random(0)

    def step():
        if len(order) < batch:
            order[:] = rng.sample(range(len(rows)), len(rows))
        chosen = [order.pop() for _ in range(batch)]
        ids = torch.nn.utils.rnn.pad_sequence([rows[i] for i in chosen], batch_first=True)
        lengths = torch.tensor([len(rows[i]) for i in chosen])
        mask = (torch.arange(ids.shape[1])[None, :] < lengths[:, None]).long()
        train(input_ids=ids, attention_mask=mask, labels=torch.tensor([labels[i] for i in chosen]))
        return int(lengths.sum())

    return step


def whole_reviews(*_):
    """One thread, whole reviews without truncation, no offsets (the fastest call the library has)."""
    texts, _ = read_reviews()
    tokenizer = make_tokenizer()
    parts = [texts[i:i + 50] for i in range(0, len(texts), 50)]
    count = iter(range(1 << 62))

    def step():
        return sum(len(encoding.ids) for encoding in tokenizer.encode_batch_fast(parts[next(count) % len(parts)]))

    return step


def read_cifar(name):
    """Images uint8 [n, 3, 32, 32] and labels of a file of CIFAR-10's binary records."""
    import numpy
    folder = pathlib.Path(os.environ.get("TERN_DATA", "data")) / "cifar-10-batches-bin"
    if not folder.is_dir():
        raise SystemExit(f"pytorch_side: {folder} not found: set TERN_DATA to the folder that holds it")
    records = numpy.fromfile(folder / name, numpy.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32).copy(), records[:, 0].astype("int64")


def make_jpegs(folder):
    """320 files of 500 x 375 pixels that cost as much as photographs: twelve images of CIFAR-10's test set each,
    enlarged, with noise, quality 88 (about 44 KB)."""
    import numpy
    from PIL import Image
    images, rng = read_cifar("test_batch.bin")[0], numpy.random.default_rng(0)
    for i in range(320):
        picture = Image.new("RGB", (500, 375))
        for k in range(12):
            tile = Image.fromarray(images[12 * i + k].transpose(1, 2, 0)).resize((125, 125), Image.BICUBIC)
            picture.paste(tile, (k % 4 * 125, k // 4 * 125))
        noisy = numpy.asarray(picture).astype(numpy.int16) + rng.normal(0, 4, (375, 500, 3))
        target = folder / "train" / f"label{i % 4}"
        target.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy.clip(0, 255).astype(numpy.uint8)).save(target / f"{i:04}.jpg", quality=88)


def fastest(loaders):
    """A step is a pass over the loader whose second pass takes the least processor time."""
    steps = [lambda loader=loader: sum(len(labels) for _, labels in loader) for loader in loaders]

    def seconds_of(step):
        step()
        start = cpu_time()
        step()
        return cpu_time() - start

    return min(steps, key=seconds_of)


def jpegs(batch, size, seconds, workers):
    """torchvision's ImageFolder with its two decoders: PIL, and the library's decoder with transforms of tensors."""
    import torch
    from torchvision import datasets, io
    from torchvision.transforms import v2
    folder = pathlib.Path(os.environ["TERN_BENCH_JPEGS"]) / "train"
    random = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    sets = [datasets.ImageFolder(folder, v2.Compose([*random, v2.ToImage(), *last])),
            datasets.ImageFolder(folder, v2.Compose([*random, *last]), loader=io.decode_image)]
    torch.set_num_threads(1)
    return fastest([torch.utils.data.DataLoader(chosen, batch, shuffle=True, num_workers=SETTING.threads,
                                                persistent_workers=True) for chosen in sets])


def augment(_, __, batch, size):
    """The transforms of each image in a DataLoader: of PIL images, and of tensors."""
    import torch
    from PIL import Image
    from torchvision.transforms import v2
    images, labels = read_cifar("data_batch_1.bin")
    random = [v2.RandomCrop(size, padding=4), v2.RandomHorizontalFlip()]
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    pillow, tensors = v2.Compose([*random, v2.ToImage(), *last]), v2.Compose([*random, *last])
    arrays, stack = images.transpose(0, 2, 3, 1).copy(), torch.from_numpy(images)

    class Rows(torch.utils.data.Dataset):
        def __init__(self, item):
            self.item = item

        def __len__(self):
            return len(labels)

        def __getitem__(self, row):
            return self.item(row), labels[row]

    sets = [Rows(lambda row: pillow(Image.fromarray(arrays[row]))), Rows(lambda row: tensors(stack[row]))]
    torch.set_num_threads(1)
    return fastest([torch.utils.data.DataLoader(chosen, batch, shuffle=True) for chosen in sets])


def gemm(_, __, ___, size):
    """An item is an operation."""
    import torch
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[SETTING.dtype]
    size = size if SETTING.device == "cpu" else 4 * size
    a, b = (torch.randn(size, size, device=SETTING.device).to(dtype) for _ in range(2))

    def step():
        torch.mm(a, b)
        if SETTING.device != "cpu":
            torch.cuda.synchronize()
        return 2 * size**3

    return step


ROWS = {  # the function of the row, then its arguments: kind, size of the model, batch, length
    "train-base-8x128": (full_length, "train", "base", 8, 128),
    "train-base-4x512": (full_length, "train", "base", 4, 512),
    "train-base-12x512": (full_length, "train", "base", 12, 512),
    "train-base-32x512": (full_length, "train", "base", 32, 512),
    "train-small-16x256": (full_length, "train", "small", 16, 256),
    "train-tiny-32x256": (full_length, "train", "tiny", 32, 256),
    "infer-base-8x128": (full_length, "infer", "base", 8, 128),
    "infer-base-128x128": (full_length, "infer", "base", 128, 128),
    "infer-tiny-32x256": (full_length, "infer", "tiny", 32, 256),
    "imdb-tiny": (imdb, "train", "tiny", 32, 512),    # real lengths, padded to the longest of a shuffled batch of 32
    "imdb-small": (imdb, "train", "small", 16, 512),
    "imdb-base": (imdb, "train", "base", 64, 512),
    "train-vit-64": (images, "train-images", "vit", 64, 32),  # images of 32 x 32
    "infer-vit-64": (images, "infer-images", "vit", 64, 32),
    "train-resnet18-128": (images, "train-images", "resnet18", 128, 32),
    "infer-resnet18-128": (images, "infer-images", "resnet18", 128, 32),
    "train-resnet50-256": (images, "train-images", "resnet50", 256, 224),
    "infer-resnet50-256": (images, "infer-images", "resnet50", 256, 224),
    "train-mobilenet-16": (images, "train-images", "mobilenet_v3_small", 16, 224),
    "infer-mobilenet-16": (images, "infer-images", "mobilenet_v3_small", 16, 224),
    "train-gpt-16x128": (gpt, None, None, 16, 128),
    **{f"op-{name}": (op, name, False, 4096, 1024) for name in OPS},
    **{f"op-{name}-training": (op, name, True, 4096, 1024) for name in TRAINED_OPS},
    "tokenizer": (whole_reviews, None, None, 0, 0),
    "jpeg-folder": (jpegs, None, None, 32, 224),   # batches of images of 224 x 224
    "cifar-augment": (augment, None, None, 128, 32),
    "gemm": (gemm, None, None, 0, 2048),           # PyTorch's matrix rate on this machine; on CUDA 8192
}
GPU_ROWS = ("train-base-32x512", "train-base-12x512", "infer-base-128x128", "imdb-base", "train-resnet50-256",
            "infer-resnet50-256")


def unit_of(row):
    function = ROWS[row][0]
    units = {images: "images", jpegs: "images", augment: "images", gemm: "FLOP", op: "calls"}
    return units.get(function, "tokens")


def prepare(row):
    """The row's step. The libraries import each other for seconds, so each row imports what it needs."""
    if row not in ROWS:
        raise KeyError(f"there is no row {row}")
    function, *arguments = ROWS[row]
    if function is not whole_reviews:
        import torch
        torch.set_num_threads(SETTING.threads)
    return function(*arguments)


def serve():
    """Answers line by line what tern-bench-train asks (bench/side.h)."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def say(line):
        print(json.dumps(line), file=answers, flush=True)

    say({"setting": {"device": "cuda:0" if SETTING.device == "cuda" else "cpu", "threads": SETTING.threads,
                     "tiny": False}, "program": str(pathlib.Path(__file__).resolve()), "libraries": [],
         "rows": [row for row in ROWS if row != "gemm" and not
                  (ROWS[row][0] is op if SETTING.device == "cuda" else row in GPU_ROWS)],
         "versions": versions()})
    timed = None
    for line in sys.stdin:
        word, _, row = line.strip().partition(" ")
        try:
            if word == "sample":
                say(timed.sample())
            else:
                timed = None
                timed = Timed(prepare(row))
                say({"work": {"unit": unit_of(row)}})
        except (Exception, SystemExit) as problem:
            say({"error": f"{type(problem).__name__}: {problem}"})


def versions():
    from importlib.metadata import version
    return {name: version(name) for name in ("torch", "transformers", "tokenizers", "torchvision", "timm")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="answer tern-bench-train on standard input")
    parser.add_argument("--rows", default="", help=f"comma-separated, of {', '.join(ROWS)}")
    parser.add_argument("--make-jpegs", type=pathlib.Path, metavar="FOLDER",
                        help="write the files that row jpeg-folder reads, measure nothing")
    parser.add_argument("--seconds", type=float, default=10, help="measured, after two steps of warm-up")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--full-last-layer", action="store_true", help="as PyTorch always does")
    parser.add_argument("--no-capture", action="store_true", help="as PyTorch always does")
    options = parser.parse_args()
    if options.make_jpegs:
        return make_jpegs(options.make_jpegs)
    SETTING.device, SETTING.dtype, SETTING.threads = options.device, options.dtype, options.threads
    SETTING.compile = options.compile or os.environ.get("TERN_COMPARE_COMPILE") == "1"
    # The libraries read these when they start.
    os.environ |= {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads),
                   "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if options.serve:
        return serve()
    rows = options.rows.split(",") if options.rows else list(ROWS)
    unknown = [row for row in rows if row not in ROWS]
    if unknown:
        parser.error(f"unknown row {unknown[0]}")
    for row in rows:
        try:
            result = measure(prepare(row), options.seconds) | {"unit": unit_of(row)}
        except (Exception, SystemExit) as problem:
            result = {"error": f"{type(problem).__name__}: {problem}"}
        print(json.dumps({"name": row, "threads": options.threads, "device": options.device,
                          "dtype": options.dtype} | result | {"versions": versions()}), flush=True)


if __name__ == "__main__":
    main()
