#!/usr/bin/env python3
"""check_dlpack.py LIBRARY numpy|torch: exchanges tensors with Tern over DLPack and files, in both directions.

LIBRARY is built from dlpack_module.cpp. Ends with 77 where the package is not installed.
"""
import ctypes
import gc
import io
import os
import sys
import tempfile
import threading
import zipfile

try:
    import numpy as np
    if sys.argv[2] == "torch":
        import torch
except ImportError as error:
    print(error)
    sys.exit(77)

C = ctypes
lib = C.CDLL(sys.argv[1])
for name, result, arguments in [
        ("last_answer", C.c_char_p, []), ("released_blobs", C.c_int, []), ("make", C.c_int64, [C.c_char_p]),
        ("forget", None, [C.c_int64]), ("give", C.c_void_p, [C.c_int64, C.c_int]),
        ("take", C.c_int64, [C.c_void_p, C.c_int, C.c_int]), ("describe", C.c_char_p, [C.c_int64]),
        ("fill", None, [C.c_int64, C.c_double]), ("save", C.c_int, [C.c_int64, C.c_char_p, C.c_char_p]),
        ("load", C.c_int64, [C.c_char_p, C.c_char_p])]:
    getattr(lib, name).restype = result
    getattr(lib, name).argtypes = arguments
api = C.pythonapi
api.PyCapsule_New.restype = C.py_object
api.PyCapsule_New.argtypes = [C.c_void_p, C.c_char_p, C.c_void_p]
api.PyCapsule_GetPointer.restype = C.c_void_p
api.PyCapsule_GetPointer.argtypes = [C.py_object, C.c_char_p]
api.PyCapsule_SetName.argtypes = [C.py_object, C.c_char_p]
api.PyCapsule_IsValid.argtypes = [C.py_object, C.c_char_p]

NAMES = {0: b"dltensor", 1: b"dltensor_versioned"}
USED = {0: b"used_dltensor", 1: b"used_dltensor_versioned"}
NEVER, IF_NEEDED, ALWAYS = 0, 1, 2
checks = 0


def check(condition, *what):
    global checks
    checks += 1
    if not condition:
        raise SystemExit(f"FAILED: {' '.join(map(str, what))}")


class TernTensor:
    """What an object of Python needs so that other libraries take its memory."""

    def __init__(self, kind, versioned=True):
        self.number = lib.make(kind.encode())
        check(self.number, lib.last_answer())
        self.versioned = versioned

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, max_version=None, **_):
        versioned = int(self.versioned and max_version is not None and max_version[0] >= 1)
        pointer = lib.give(self.number, versioned)
        if not pointer:
            raise BufferError(lib.last_answer().decode())
        return api.PyCapsule_New(pointer, NAMES[versioned], None)


def taken(array, copy=NEVER, versioned=True):
    """The number of Tern's tensor on the array's memory; 0 where it is refused."""
    capsule = array.__dlpack__(max_version=(1, 0)) if versioned else array.__dlpack__()
    versioned = int(api.PyCapsule_IsValid(capsule, NAMES[1]))
    number = lib.take(api.PyCapsule_GetPointer(capsule, NAMES[versioned]), versioned, copy)
    if number:
        api.PyCapsule_SetName(capsule, USED[versioned])
    return number


def said(array, copy=NEVER, versioned=True):
    number = taken(array, copy, versioned)
    if not number:
        return lib.last_answer().decode()
    text = lib.describe(number).decode()
    lib.forget(number)
    return text


def check_given(from_dlpack, module, has_bfloat16):
    """What another library makes of Tern's tensors."""
    for versioned in (True, False):
        for kind in ["float64", "float32", "float16", "int64", "int32", "uint8", "bool", "bfloat16"]:
            if kind == "bfloat16" and not has_bfloat16:
                continue
            array = from_dlpack(TernTensor(kind, versioned))
            expected = [[0, 1, 2], [3, 4, 5]] if kind != "bool" else [[0, 1, 1], [1, 1, 1]]
            check(str(array.dtype).endswith(kind), kind, array.dtype)
            check(array.tolist() == expected, kind, array)
        check(from_dlpack(TernTensor("scalar", versioned)).shape == (), "scalar")
        check(float(from_dlpack(TernTensor("scalar", versioned))) == 2.5, "scalar")
        check(tuple(from_dlpack(TernTensor("empty", versioned)).shape) == (0, 3), "empty")
        numbers = np.arange(24).reshape(2, 3, 4)[:, :, 1:4:2].transpose(1, 0, 2)
        check(from_dlpack(TernTensor("view", versioned)).tolist() == numbers.tolist(), "view")
        check(from_dlpack(TernTensor("broadcast", versioned)).tolist() == [[0, 1, 2]] * 4, "broadcast")

    # One memory: each side sees what the other writes.
    tensor = TernTensor("float32")
    array = from_dlpack(tensor)
    if module is np:
        check(array.flags.writeable, "an array of Tern's memory can be written")
    array[0, 1] = 40
    check("values 0 40 2 3 4 5" in lib.describe(tensor.number).decode(), lib.describe(tensor.number))
    lib.fill(tensor.number, 7)
    check(array.tolist() == [[7] * 3] * 2, array)

    # Lifetime: the array keeps the memory, and the last to go releases it, on any thread.
    before = lib.released_blobs()
    tensor = TernTensor("counted")
    array = from_dlpack(tensor)
    lib.forget(tensor.number)
    gc.collect()
    check(lib.released_blobs() == before, "the memory lives with the array")
    check(array.tolist() == [1, 2, 3, 4], array)
    box = [array[1:]]
    del array
    check(lib.released_blobs() == before, "a slice keeps it too")
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    gc.collect()
    check(lib.released_blobs() == before + 1, "it is released once")
    try:
        from_dlpack(TernTensor("gradient"))
        check(False, "a tensor that requires a gradient must be refused")
    except (BufferError, RuntimeError) as error:
        check("detach()" in str(error), error)


def check_taken(make, dtypes, versioned):
    """What Tern makes of another library's arrays. `make` takes numbers and a dtype."""
    for name, dtype in dtypes.items():
        values = "0 1 1 1 1 1" if name == "bool" else "0 1 2 3 4 5"
        text = said(make([[0, 1, 2], [3, 4, 5]], dtype), versioned=versioned)
        check(text == f"{name} [2, 3] strides 3 1 values {values}", name, text)
    array = make(list(range(24)), dtypes["int32"]).reshape(2, 3, 4)
    check(said(array[1, :, 2], versioned=versioned) == "int32 [3] strides 4 values 14 18 22", "slice")
    check(said(array[1, ::2].T, versioned=versioned).startswith("int32 [4, 2] strides 1 8 values 12 20 13"), "turned")
    check(said(array[0, 0, 0:0], versioned=versioned).startswith("int32 [0]"), "empty")
    check(said(array[:1, :1, :1], versioned=versioned).endswith("values 0"), "one element")

    number = taken(array, versioned=versioned)
    lib.fill(number, 9)
    check(int(array[1, 2, 3]) == 9, "Tern's writes are seen")
    array[0, 0, 0] = -1
    check("values -1 9" in lib.describe(number).decode(), "and so are the others")
    expected = lib.describe(number)
    del array
    gc.collect()
    check(lib.describe(number) == expected, "Tern's tensor keeps the memory")
    thread = threading.Thread(target=lib.forget, args=[number])  # ctypes gives the lock of Python away meanwhile
    thread.start()
    thread.join()

    array = make([1, 2], dtypes["float32"])
    copy = taken(array, ALWAYS, versioned)
    lib.fill(copy, 0)
    check(array.tolist() == [1, 2], "a copy is one")
    lib.forget(copy)


def check_files(folder):
    """Files that Tern writes and NumPy reads, and the other way round."""
    path = os.path.join(folder, "file")
    for kind in ["float64", "float32", "float16", "int64", "int32", "uint8", "bool", "bfloat16", "scalar", "empty",
                 "view", "broadcast"]:
        tensor = TernTensor(kind)
        check(lib.save(tensor.number, path.encode(), b""), lib.last_answer())
        array = np.load(path)
        if kind == "bfloat16":
            check(array.dtype.str == "|V2" and array.view("<u2").tolist()[1][2] == 0x40a0, kind, array)
        else:
            expected = np.from_dlpack(tensor)
            check(array.dtype == expected.dtype and array.shape == expected.shape, kind, array.dtype, array.shape)
            check(array.tolist() == expected.tolist(), kind, array)
            out = io.BytesIO()
            np.save(out, np.array(expected, order="C", copy=True))
            with open(path, "rb") as file:
                check(file.read() == out.getvalue(), kind, "the bytes differ from numpy.save's")
        for name in ["a", "gr\u00fc\u00df", "\u4e2d", "x/y", "a.npy"]:
            check(lib.save(tensor.number, path.encode(), name.encode()), lib.last_answer())
            with zipfile.ZipFile(path) as archive:
                check(archive.testzip() is None, "checksums")
                check(archive.namelist() == [name + ".npy", "other/" + name + ".npy"], archive.namelist())
            with np.load(path) as archive:
                check(archive[name].tobytes() == array.tobytes(), kind, name)
                check(archive["other/" + name].shape == array.shape, kind, name)

    rng = np.random.default_rng(1)
    for dtype in ["<f8", ">f4", "<f2", ">i8", "<i4", ">i2", "|i1", "|u1", "<u2", ">u4", "|b1"]:
        for shape in [(), (0,), (5,), (3, 4), (2, 3, 4)]:
            array = (rng.normal(size=shape) * 50).astype(np.int64).astype(dtype)
            values = " ".join(f"{float(v):g}" for v in array.ravel().tolist())
            for order in "CF":
                np.save(path + ".npy", np.asarray(array, order=order))
                np.savez(path + ".npz", x=np.asarray(array, order=order))
                np.savez_compressed(path + "-c.npz", x=np.asarray(array, order=order))
                for file, name in [(".npy", ""), (".npz", "x"), ("-c.npz", "x")]:
                    number = lib.load((path + file).encode(), name.encode())
                    check(number, lib.last_answer())
                    text = lib.describe(number).decode()
                    check(text.endswith("values" + (" " + values if values else "")), dtype, shape, order, file, text)
                    lib.forget(number)


def check_numpy():
    with tempfile.TemporaryDirectory() as folder:
        check_files(folder)
    check_given(np.from_dlpack, np, False)
    try:
        np.from_dlpack(TernTensor("bfloat16"))
        check(False, "NumPy has bfloat16 now: compare it too")
    except (BufferError, RuntimeError):
        pass
    names = ["float64", "float32", "float16", "int64", "int32", "uint8", "bool"]
    for versioned in (True, False):
        check_taken(np.array, {name: np.dtype(name) for name in names}, versioned)
    check("stride -1" in said(np.arange(3.0)[::-1]), lib.last_answer())
    for name in ["int8", "uint16", "uint64", "complex64"]:
        check(f"Tern has no {name}" in said(np.zeros(2, name)), lib.last_answer())
    check(said(np.full((), 3.0)) == "float64 [] strides values 3", "0-d")
    check(said(np.broadcast_to(np.arange(2.0), (3, 2)), IF_NEEDED).endswith("values 0 1 0 1 0 1"), lib.last_answer())

    array = np.arange(3.0)
    array.flags.writeable = False
    check("read-only" in said(array), lib.last_answer())
    number = taken(array, IF_NEEDED)
    lib.fill(number, 5)
    check(array.tolist() == [0, 1, 2], "a read-only array stays as it is")
    lib.forget(number)

    odd = np.frombuffer(bytearray(9), np.uint8)[1:].view(np.float32)
    odd[:] = [1, 2]
    if odd.ctypes.data % 4:
        check("no multiple of their 4 bytes" in said(odd), lib.last_answer())
        check(said(odd, IF_NEEDED) == "float32 [2] strides 1 values 1 2", lib.last_answer())

    array = np.arange(5.0)
    count = sys.getrefcount(array)
    numbers = [taken(array) for _ in range(10)]
    check(sys.getrefcount(array) == count + 10, "each tensor holds the array")
    for number in numbers:
        lib.forget(number)
    check(sys.getrefcount(array) == count, "and lets it go")


def check_torch():
    check_given(torch.from_dlpack, torch, True)
    names = ["float64", "float32", "bfloat16", "float16", "int64", "int32", "uint8", "bool"]
    for versioned in (True, False):
        check_taken(lambda values, dtype: torch.tensor(values, dtype=dtype),
                    {name: getattr(torch, name) for name in names}, versioned)
    for name in ["int8", "int16", "complex64"]:
        check(f"Tern has no {name}" in said(torch.zeros(2, dtype=getattr(torch, name))), lib.last_answer())
    check("Tern has no float8_e4m3fn" in said(torch.zeros(2).to(torch.float8_e4m3fn)), lib.last_answer())
    check(said(torch.arange(2.0).expand(3, 2)) == "float32 [3, 2] strides 0 1 values 0 1 0 1 0 1", lib.last_answer())
    # In training: a step of PyTorch on Tern's memory.
    tensor = TernTensor("counted")
    weight = torch.from_dlpack(tensor).requires_grad_(True)
    (weight ** 2).sum().backward()
    with torch.no_grad():
        weight -= 0.5 * weight.grad
    check("values 0 0 0 0" in lib.describe(tensor.number).decode(), lib.describe(tensor.number))


{"numpy": check_numpy, "torch": check_torch}[sys.argv[2]]()
print(f"{checks} checks with {sys.argv[2]} "
      f"{np.__version__ if sys.argv[2] == 'numpy' else torch.__version__}")
