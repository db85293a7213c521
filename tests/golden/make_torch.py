#!/usr/bin/env python3
"""Writes tests/golden/torch/: small files by torch.save and pickle, and expected.safetensors with their tensors.

Every file holds what its name says. Names in expected.safetensors are FILE/TENSOR, as load_state_file gives them.
Run: python tests/golden/make_torch.py (PyTorch, numpy, safetensors; see requirements.txt)
"""

import argparse
import collections
import io
import json
import os
import pathlib
import pickle
import zipfile

import numpy
import safetensors.torch
import torch

FOLDER = pathlib.Path(__file__).parent / "torch"
expected = {}


def save(name, value, tensors, **options):
    """tensors: what a reader must find, by the names that it gives them."""
    torch.save(value, FOLDER / name, **options)
    expect(name, tensors)


def expect(name, tensors):
    for key, tensor in tensors.items():
        expected[f"{name}/{key}"] = tensor.detach().clone().contiguous()


def every_dtype():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 5, generator=generator, dtype=torch.float64) * 50
    floats = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
    integers = [torch.int64, torch.int32, torch.int16, torch.int8]
    tensors = {str(d)[6:]: x.to(d) for d in floats + integers}
    tensors["uint8"] = x.abs().to(torch.uint8)
    tensors["bool"] = x > 0
    tensors["scalar"] = torch.tensor(7.5)
    tensors["none"] = torch.zeros(0, 4)
    return tensors


def widened(tensors):
    """int8 and int16 as Tern reads them."""
    small = {torch.int8: torch.int32, torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
    return {k: t.to(small.get(t.dtype, t.dtype)) for k, t in tensors.items()}


def views():
    base = torch.arange(24, dtype=torch.float32)
    return {
        "base": base,
        "shared": base.view(4, 6),
        "transposed": base.view(4, 6).t(),
        "slice": base.view(4, 6)[1::2, 2:5],
        "offset": base[7:],
        "expanded": torch.tensor([[1.5], [2.5]]).expand(2, 3),
        "stepped": base.view(2, 3, 4)[:, :, 3],
        "element": base[3],
    }


def state_dict():
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2, bias=False))
    return net, net.state_dict()


def protocol_files(tensors):
    """Both formats by every protocol that torch.save can be told to use."""
    for protocol in (2, 3, 4, 5):
        value = collections.OrderedDict(tensors)
        save(f"protocol{protocol}.pt", value, tensors, pickle_protocol=protocol)
        save(f"older_protocol{protocol}.pt", value, tensors, pickle_protocol=protocol,
             _use_new_zipfile_serialization=False)


def checkpoint_files(net, state):
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    args = argparse.Namespace(lr=1e-3, output=pathlib.PosixPath("runs/a"), device=torch.device("cpu"), seed=2**70)
    save("checkpoint.pth", {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "loss": 0.25,
                            "args": args, "rng": torch.arange(5, dtype=torch.uint8), "name": "a \u00e9 \n",
                            "shape": torch.Size([1, 2]), "dtype": torch.bfloat16, "best": None,
                            "milestones": collections.Counter([3, 5]), "seen": {1, 2}, "betas": (0.9, 0.999)}, state)
    parallel = {"module." + k: v for k, v in state.items()}
    save("parallel.pth", parallel, state)
    compiled = {"module._orig_mod." + k: v for k, v in state.items()}
    save("compiled.pth", {"net": {"state_dict": compiled}, "acc": 91.5}, state)
    save("average.pth", {"epoch": 1, "model_ema": {"n_averaged": torch.tensor(3), **parallel}}, state)
    save("parameters.pth", [torch.nn.Parameter(state["0.weight"]), {"nested": [state["0.bias"]]}],
         {"0": state["0.weight"], "1.nested.0": state["0.bias"]})
    save("alone.pt", state["0.weight"], {"tensor": state["0.weight"]})


def rewrite(name, data, change=lambda path, data: data, **options):
    """An archive of torch.save's entries, written by Python's zipfile."""
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(FOLDER / name, "w") as new:
        for info in old.infolist():
            record = zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0))
            new.writestr(record, change(info.filename, old.read(info)), **options)


def archive_files(tensors):
    torch.save(tensors, buffer := io.BytesIO())
    data = buffer.getvalue()
    sizes = {str(i): t.element_size() for i, t in enumerate(tensors.values())}

    def swap(path, data):
        folder, _, name = path.rpartition("/")
        if name == "byteorder":
            return b"big"
        if not folder.endswith("/data"):
            return data
        return numpy.frombuffer(data, "u1").reshape(-1, sizes[name])[:, ::-1].tobytes()

    rewrite("big_endian.pt", data, swap)
    rewrite("compressed.pt", data, compress_type=zipfile.ZIP_DEFLATED)
    limits = zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT
    zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = 0, 0
    rewrite("zip64.pt", data)
    zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = limits
    torch.serialization.set_crc32_options(False)
    torch.save(tensors, FOLDER / "no_checksums.pt")
    torch.serialization.set_crc32_options(True)
    for name in ("big_endian.pt", "zip64.pt", "no_checksums.pt"):
        loaded = torch.load(FOLDER / name)
        assert all(torch.equal(loaded[k], t) for k, t in tensors.items())
        expect(name, tensors)


class Call:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def hostile_files():
    for name, options in (("hostile.pt", {}), ("older_hostile.pt", {"_use_new_zipfile_serialization": False})):
        torch.save({"weight": torch.ones(2), "x": Call(os.system, "touch hostile-was-here")}, FOLDER / name, **options)
    with open(FOLDER / "hostile.pkl", "wb") as file:
        pickle.dump(Call(eval, "1"), file, protocol=4)
    torch.save(torch.nn.Linear(2, 2), FOLDER / "module.pt")


def python2_batch():
    """A CIFAR-10 batch as the official files are: protocol 2 by Python 2, whose str are bytes; 4 instead of 10,000."""
    data = numpy.random.default_rng(5).integers(0, 256, (4, 3072), dtype=numpy.uint8)
    out = bytearray(b"\x80\x02}q\x01(")

    def text(value):
        out.extend(b"U" + bytes([len(value)]) + value)

    text(b"batch_label")
    text(b"testing batch 1 of 1")
    text(b"labels")
    out.extend(b"](K\x03K\x08K\x08K\x00e")
    text(b"data")
    out.extend(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01M\x04\x00M\x00\x0c\x86")
    out.extend(b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89")
    out.extend(b"T" + len(data.tobytes()).to_bytes(4, "little") + data.tobytes() + b"tb")
    text(b"filenames")
    out.extend(b"](")
    for i in range(4):
        text(b"image_%d.png" % i)
    out.extend(b"eu.")
    (FOLDER / "cifar_batch").write_bytes(out)
    loaded = pickle.loads(bytes(out), encoding="bytes")
    assert numpy.array_equal(loaded[b"data"], data) and loaded[b"labels"] == [3, 8, 8, 0]
    expect("cifar_batch", {"data": torch.from_numpy(data)})


def numpy_files():
    arrays = {
        "float64": numpy.linspace(-1, 1, 6).reshape(2, 3),
        "fortran": numpy.asfortranarray(numpy.arange(6, dtype=numpy.float32).reshape(2, 3)),
        "big": numpy.arange(5, dtype=">f4"),
        "int16": numpy.array([-2, 300], dtype=numpy.int16),
        "big_int16": numpy.array([-2, 300], dtype=">i2"),
        "bool": numpy.array([True, False]),
        "scalar": numpy.array(3, dtype=numpy.int64),
    }
    scalars = {"mean": numpy.float32(0.5), "count": numpy.int64(-9), "flag": numpy.bool_(True)}
    tensors = {k: torch.from_numpy(v.astype(v.dtype.newbyteorder("="))) for k, v in arrays.items()}
    for protocol in range(6):
        with open(FOLDER / f"numpy{protocol}.pkl", "wb") as file:
            pickle.dump({**arrays, "values": scalars}, file, protocol=protocol)
        expect(f"numpy{protocol}.pkl", widened(tensors))


def numpy_in_torch():
    """Arrays have their bytes in the pickle, tensors elsewhere."""
    arrays = {"tensor": torch.arange(4), "array": numpy.arange(4, dtype=numpy.int64) - 2, "more": torch.ones(2)}
    tensors = {k: torch.as_tensor(v) for k, v in arrays.items()}
    save("numpy_in.pt", arrays, tensors)
    save("older_numpy_in.pt", arrays, tensors, _use_new_zipfile_serialization=False)
    save("only_numpy.pt", {"array": arrays["array"]}, {"array": tensors["array"]})


def model_parts():
    """train_curve's weights as an older transformers saved what was too large for one file."""
    folder = FOLDER / "parts"
    folder.mkdir(exist_ok=True)
    state = safetensors.torch.load_file(FOLDER.parent / "train_curve" / "model.safetensors")
    names = sorted(state)
    weight_map = {}
    for part, chosen in enumerate((names[::2], names[1::2]), 1):
        file = f"pytorch_model-0000{part}-of-00002.bin"
        torch.save(collections.OrderedDict((n, state[n]) for n in chosen), folder / file)
        weight_map.update({n: file for n in chosen})
    index = {"metadata": {"total_size": sum(t.nbytes for t in state.values())}, "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def odd_values():
    """Tensors that are not dense arrays of a usual type, and containers and numbers beside the weights."""
    eye = torch.eye(3)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    state = {"model": {"weight": torch.arange(6.0).reshape(2, 3)}}
    state["odd"] = {
        "coo": eye.to_sparse(),
        "csr": eye.to_sparse_csr(),
        "parameter": torch.nn.Parameter(eye.to_sparse()),
        "quantised": torch.quantize_per_tensor(eye, 0.1, 1, torch.qint8),
        "channels": torch.quantize_per_channel(eye, torch.ones(3), torch.zeros(3, dtype=torch.long), 0, torch.quint8),
        "meta": torch.empty(2, 3, device="meta"),
        "bits": torch.zeros(2, dtype=torch.bits8),
        "float4": torch.zeros(2, 3, dtype=torch.float4_e2m1fn_x2),
        "float8": torch.ones(2).to(torch.float8_e8m0fnu),
        "uint64": torch.ones(2, dtype=torch.uint64),
        "nested": nested,
        "lazy": torch.nn.UninitializedParameter(),
        "buffer": torch.nn.Buffer(torch.ones(2)),
    }
    state["complex"] = 1 - 2.5j
    state["numpy_complex"] = numpy.complex64(0.5 + 1j)
    state["deque"] = collections.deque([1, 2], maxlen=5)
    state["counts"] = collections.defaultdict(int, {"a": 1})
    state["lists"] = collections.defaultdict(list)
    state["plain"] = [slice(1, 2), range(3), ...]
    return state


def main():
    FOLDER.mkdir(exist_ok=True)
    tensors = every_dtype()
    net, state = state_dict()
    save("dtypes.pt", tensors, widened(tensors))
    save("older_dtypes.pt", tensors, widened(tensors), _use_new_zipfile_serialization=False)
    save("unsigned.pt", (u := {"a": torch.tensor([1, 65535], dtype=torch.uint16),
                               "b": torch.tensor([1, 2**32 - 1], dtype=torch.uint32)}), widened(u))
    save("views.pt", views(), views())
    save("older_views.pt", views(), views(), _use_new_zipfile_serialization=False)
    for protocol in (2, 4):
        torch.save(odd_values(), FOLDER / f"odd{protocol}.pt", pickle_protocol=protocol)
    torch.save({"good": torch.ones(2), "odd": torch.ones(2, dtype=torch.complex64)}, FOLDER / "complex.pt")
    expect("complex.pt", {"good": torch.ones(2)})
    protocol_files({"w": torch.linspace(-2, 2, 6).view(2, 3), "b": torch.tensor([1, 2], dtype=torch.int64)})
    checkpoint_files(net, state)
    archive_files({"x": torch.linspace(0, 1, 7), "i": torch.arange(-3, 3), "h": torch.ones(3, dtype=torch.bfloat16)})
    hostile_files()
    python2_batch()
    numpy_files()
    numpy_in_torch()
    model_parts()
    safetensors.torch.save_file(expected, FOLDER / "expected.safetensors")


if __name__ == "__main__":
    main()
