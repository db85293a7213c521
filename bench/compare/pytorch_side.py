#!/usr/bin/env python3
"""PyTorch's half of the comparison: measures one row and prints one JSON line.

  pytorch_side.py ROW --seconds 10 --threads 2
  pytorch_side.py ROW --device cuda --dtype bf16 [--compile]
Hugging Face's DistilBertForSequenceClassification with its default attention (sdpa), or timm's VisionTransformer (which
is faster than Hugging Face's), with random weights; fp32 and eager unless asked for more: bf16 is autocast, fp16
autocast with a GradScaler. A training step is forward, backward, clipping to norm 1 and fused AdamW, with dropout 0.1.
`per_second` counts tokens or images: the median over steps; where steps differ (imdb, tokenizer, images from files) all
of them over all seconds. Only real tokens count, never padding. `per_cpu_second` is the same over processor time.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import random
import statistics
import time

SIZES = {"base": (768, 6, 12), "small": (256, 4, 4), "tiny": (128, 2, 2)}  # width, layers, heads
ROWS = {
    "train-base-8x128": ("train", "base", 8, 128),
    "train-base-4x512": ("train", "base", 4, 512),
    "train-base-12x512": ("train", "base", 12, 512),
    "train-base-32x512": ("train", "base", 32, 512),
    "train-small-16x256": ("train", "small", 16, 256),
    "train-tiny-32x256": ("train", "tiny", 32, 256),
    "infer-base-8x128": ("infer", "base", 8, 128),
    "infer-base-128x128": ("infer", "base", 128, 128),
    "infer-tiny-32x256": ("infer", "tiny", 32, 256),
    "imdb-tiny": ("imdb", "tiny", 32, 512),    # real lengths, padded to the longest of a shuffled batch of 32
    "imdb-small": ("imdb", "small", 16, 512),
    "imdb-base": ("imdb", "base", 64, 512),
    "train-vit-64": ("train-images", "vit", 64, 32),  # images of 32 x 32
    "infer-vit-64": ("infer-images", "vit", 64, 32),
    "tokenizer": ("tokenizer", None, 0, 0),
    "jpeg-folder": ("jpegs", None, 32, 224),   # batches of images of 224 x 224
    "cifar-augment": ("augment", None, 128, 32),
    "gemm": ("gemm", None, 0, 2048),           # PyTorch's matrix rate on this machine; on CUDA 8192
}
SETTING = argparse.Namespace(device="cpu", dtype="fp32", compile=False)  # set from the command line, see main()
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


def matrix_flops(size, lengths, passes):
    """Floating-point operations of the matrix products of one step; backward counts twice the forward."""
    dim, layers, _ = SIZES[size]
    return passes * sum(layers * (24 * dim * dim * n + 4 * dim * n * n) for n in lengths)


def cpu_time():
    """Processor seconds of this process and its living children, the loaders' workers."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])  # user and system
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def measure(step, seconds, warmup=2, least=3):
    """Calls step() -> items for about that long. Returns the items, seconds and processor seconds of every call."""
    for _ in range(warmup):
        step()
    items, times, cpu_times = [], [], []
    while sum(times) < seconds or len(times) < least:
        cpu_start, start = cpu_time(), time.perf_counter()
        items.append(step())
        times.append(time.perf_counter() - start)
        cpu_times.append(cpu_time() - cpu_start)
    return items, times, cpu_times


def summary(items, times, cpu_times, equal_steps):
    rates = [count / taken for count, taken in zip(items, times)]
    cpu_rates = [count / taken for count, taken in zip(items, cpu_times)]
    mean = sum(items) / sum(times)
    return {"per_second": statistics.median(rates) if equal_steps else mean,
            "per_cpu_second": statistics.median(cpu_rates) if equal_steps else sum(items) / sum(cpu_times),
            "best_per_second": max(rates) if equal_steps else mean, "mean_per_second": mean,
            "steps": len(times), "seconds": sum(times), "median_step_seconds": statistics.median(times)}


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


def full_length(kind, size, batch, length, seconds):
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

    result = summary(*measure(step, seconds), equal_steps=True)
    flops = matrix_flops(size, [length] * batch, 3 if kind == "train" else 1)
    return result | {"flops_per_item": flops / (batch * length),
                     "gflops": flops / (batch * length) * result["per_second"] / 1e9}


def make_vit(train):
    """Tern's preset tiny: 192 wide, 9 layers, 3 heads, patches of 4 x 4."""
    import timm
    import torch
    torch.manual_seed(0)
    model = timm.models.vision_transformer.VisionTransformer(
        img_size=32, patch_size=4, num_classes=10, embed_dim=192, depth=9, num_heads=3, pos_drop_rate=0.1,
        proj_drop_rate=0.1, attn_drop_rate=0.1).train(train).to(SETTING.device)
    return torch.compile(model) if SETTING.compile else model


def images(kind, batch, size, seconds):
    import torch
    model = make_vit(train=kind == "train-images")
    batches = [torch.randn(batch, 3, size, size) for _ in range(8)]
    labels = torch.arange(batch) % 10
    train = training_step(model, lambda model, data: torch.nn.functional.cross_entropy(model(data["x"]), data["y"]))
    count = iter(range(1 << 62))

    def step():
        x = batches[next(count) % len(batches)]
        if kind == "train-images":
            train(x=x, y=labels)
        else:
            with torch.inference_mode(), autocast():
                model(x.to(SETTING.device)).sum().item()
        return batch

    result = summary(*measure(step, seconds), equal_steps=True)
    tokens = (size // 4) ** 2 + 1
    forward = 9 * (24 * 192 * 192 * tokens + 4 * 192 * tokens**2) + 2 * 192 * (48 * (tokens - 1) + 10)
    flops = forward * (3 if kind == "train-images" else 1)
    return result | {"flops_per_item": flops, "gflops": flops * result["per_second"] / 1e9}


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


def imdb(size, batch, longest, seconds):
    import torch
    texts, labels = read_reviews()
    tokenizer = make_tokenizer()
    tokenizer.enable_truncation(longest)
    rows = [torch.tensor(encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    train = training_step(make_model(size, train=True))
    order, rng, done = [], random.Random(0), []

    def step():
        if len(order) < batch:
            order[:] = rng.sample(range(len(rows)), len(rows))
        chosen = [order.pop() for _ in range(batch)]
        ids = torch.nn.utils.rnn.pad_sequence([rows[i] for i in chosen], batch_first=True)
        lengths = torch.tensor([len(rows[i]) for i in chosen])
        mask = (torch.arange(ids.shape[1])[None, :] < lengths[:, None]).long()
        train(input_ids=ids, attention_mask=mask, labels=torch.tensor([labels[i] for i in chosen]))
        done.append((int(lengths.sum()), ids.numel()))
        return done[-1][0]

    result = summary(*measure(step, seconds), equal_steps=False)
    flops = matrix_flops(size, [len(row) for row in rows], 3) / sum(map(len, rows))
    return result | {"padding": 1 - sum(real for real, _ in done) / sum(full for _, full in done),
                     "flops_per_item": flops, "gflops": flops * result["per_second"] / 1e9}


def tokenizer_row(seconds):
    """One thread, whole reviews without truncation, no offsets (the fastest call the library has)."""
    texts, _ = read_reviews()
    tokenizer = make_tokenizer()
    parts = [texts[i:i + 50] for i in range(0, len(texts), 50)]
    sizes = [sum(len(text.encode()) for text in part) for part in parts]
    count, read = iter(range(1 << 62)), []

    def step():
        index = next(count) % len(parts)
        read.append(sizes[index])
        return sum(len(encoding.ids) for encoding in tokenizer.encode_batch_fast(parts[index]))

    tokens, times, cpu_times = measure(step, seconds)
    return summary(tokens, times, cpu_times, equal_steps=False) | {
        "megabytes_per_second": sum(read[-len(times):]) / sum(times) / 1e6}


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


def fastest(loaders, seconds):
    """Measures passes over each of the loaders; the result of the one with the highest rate."""
    results = {}
    for name, loader in loaders.items():
        def step(loader=loader):
            return sum(len(labels) for _, labels in loader)
        results[name] = summary(*measure(step, seconds / len(loaders)), equal_steps=False)
    name = max(results, key=lambda key: results[key]["per_cpu_second"])
    return results[name] | {"way": name, "others": {key: results[key] for key in results if key != name}}


def jpegs(batch, size, seconds, workers):
    """torchvision's ImageFolder in its two ways: PIL, and the library's own decoder with transforms of tensors."""
    import torch
    from torchvision import datasets, io
    from torchvision.transforms import v2
    folder = pathlib.Path(os.environ["TERN_BENCH_JPEGS"]) / "train"
    random = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    sets = {"PIL": datasets.ImageFolder(folder, v2.Compose([*random, v2.ToImage(), *last])),
            "tensors": datasets.ImageFolder(folder, v2.Compose([*random, *last]), loader=io.decode_image)}
    torch.set_num_threads(1)
    return fastest({name: torch.utils.data.DataLoader(chosen, batch, shuffle=True, num_workers=workers,
                                                      persistent_workers=workers > 0)
                    for name, chosen in sets.items()}, seconds)


def augment(batch, size, seconds):
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

    sets = {"PIL": Rows(lambda row: pillow(Image.fromarray(arrays[row]))),
            "tensors": Rows(lambda row: tensors(stack[row]))}
    torch.set_num_threads(1)
    return fastest({name: torch.utils.data.DataLoader(chosen, batch, shuffle=True) for name, chosen in sets.items()},
                   seconds)


def gemm(size, seconds):
    import torch
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[SETTING.dtype]
    size = size if SETTING.device == "cpu" else 4 * size
    a, b = (torch.randn(size, size, device=SETTING.device).to(dtype) for _ in range(2))

    def product():
        result = torch.mm(a, b)
        if SETTING.device != "cpu":
            torch.cuda.synchronize()
        return len(result)

    _, times, cpu_times = measure(product, seconds)
    return {"gflops": 2 * size**3 / statistics.median(times) / 1e9,
            "cpu_gflops": 2 * size**3 / statistics.median(cpu_times) / 1e9,
            "best_gflops": 2 * size**3 / min(times) / 1e9, "steps": len(times), "seconds": sum(times)}


def versions():
    from importlib.metadata import version
    return {name: version(name) for name in ("torch", "transformers", "tokenizers", "torchvision", "timm")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", choices=ROWS, nargs="?")
    parser.add_argument("--make-jpegs", type=pathlib.Path, metavar="FOLDER",
                        help="write the files that row jpeg-folder reads, measure nothing")
    parser.add_argument("--seconds", type=float, default=10, help="measured, after two steps of warm-up")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    options = parser.parse_args()
    if options.make_jpegs:
        return make_jpegs(options.make_jpegs)
    if options.row is None:
        parser.error("a row is missing")
    SETTING.device, SETTING.dtype, SETTING.compile = options.device, options.dtype, options.compile
    kind, size, batch, length = ROWS[options.row]
    # The libraries read these when they start.
    os.environ |= {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads),
                   "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if kind != "tokenizer":
        import torch
        torch.set_num_threads(options.threads)
    if kind == "imdb":
        result = imdb(size, batch, length, options.seconds)
    elif kind == "jpegs":
        result = jpegs(batch, length, options.seconds, options.threads)
    elif kind == "augment":
        result = augment(batch, length, options.seconds)
    elif kind == "tokenizer":
        result = tokenizer_row(options.seconds)
    elif kind.endswith("-images"):
        result = images(kind, batch, length, options.seconds)
    elif kind == "gemm":
        result = gemm(length, options.seconds)
    else:
        result = full_length(kind, size, batch, length, options.seconds)
    if options.device == "cuda" and kind != "tokenizer":
        result["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
    result |= {"device": options.device, "dtype": options.dtype, "compile": options.compile}
    threads = 1 if kind in ("tokenizer", "augment") else options.threads
    unit = "images" if kind.endswith("-images") or kind in ("jpegs", "augment") else "tokens"
    print(json.dumps({"row": options.row, "side": "pytorch", "unit": unit, "threads": threads} | result
                     | {"versions": versions()}))


if __name__ == "__main__":
    main()
