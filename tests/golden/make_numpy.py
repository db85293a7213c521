#!/usr/bin/env python3
"""Writes tests/golden/numpy: files of NumPy for tests/core/npy_test.cpp.

arrays.npz holds a .npy for each case (stored, so that the test finds its bytes); savez.npz and compressed.npz are what
NumPy makes of several arrays. Needs numpy and ml_dtypes; made with numpy 2.4.6 and ml_dtypes 0.6.0.
"""
import io
import pathlib
import zipfile

import ml_dtypes
import numpy as np

FOLDER = pathlib.Path(__file__).parent / "numpy"
SIGNED = [-2, -1, 0, 1, 2, 100]
UNSIGNED = [0, 1, 2, 3, 100, 200]
BOOL = [1, 0, 1, 1, 0, 0]


def saved(array, version=None):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version, allow_pickle=True)
    return out.getvalue()


def cases():
    for order in "<>":
        for code in ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "u2", "u4", "b1"]:
            values = BOOL if code == "b1" else UNSIGNED if code[0] == "u" else SIGNED
            name = ("" if order == "<" else "big_") + code
            yield name, saved(np.array(values, dtype=order + code).reshape(2, 3))
    numbers = np.array([1.5, -2, 3.140625, np.inf, np.nan, -0.0], dtype=ml_dtypes.bfloat16)
    yield "bfloat16", saved(numbers)
    yield "scalar", saved(np.float64(2.5))
    yield "empty", saved(np.zeros((0, 3), np.float32))
    yield "vector", saved(np.arange(3, dtype=np.int64))
    yield "eight", saved(np.arange(4, dtype=np.float32).reshape(1, 2, 1, 1, 2, 1, 1, 1))
    yield "fortran", saved(np.asfortranarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4)))
    yield "version2", saved(np.arange(6, dtype=np.float64).reshape(2, 3), (2, 0))
    yield "version3", saved(np.arange(6, dtype=np.float64).reshape(2, 3), (3, 0))
    yield "odd_uint64", saved(np.arange(2, dtype=np.uint64))
    yield "odd_complex64", saved(np.zeros((2, 1), np.complex64))
    yield "odd_longdouble", saved(np.zeros(2, np.longdouble))
    yield "odd_float8", saved(np.zeros(2, ml_dtypes.float8_e4m3fn))
    yield "odd_text", saved(np.array(["ab", "c"]))
    yield "odd_bytes", saved(np.array([b"ab", b"c"]))
    yield "odd_date", saved(np.array(["2026-01-01"], "M8[D]"))
    yield "odd_object", saved(np.array([1, "a", None], dtype=object))
    yield "odd_record", saved(np.zeros(2, [("x", "<f4", (2,)), ("y", [("a]", "u1"), ("b", "<i8")])]))
    yield "odd_unicode_record", saved(np.zeros(2, [("\u00fc\u4e2d", "<f4")]))
    yield "odd_nine", saved(np.zeros((1,) * 9, np.float32))


def main():
    FOLDER.mkdir(exist_ok=True)
    with zipfile.ZipFile(FOLDER / "arrays.npz", "w") as archive:
        for name, data in cases():
            archive.writestr(zipfile.ZipInfo(name + ".npy"), data)
    several = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "folder/b": np.arange(3),
               "gr\u00fc\u00df": np.float64(4), "small": np.array([-1, 7], np.int8), "text": np.array(["no"]),
               "empty": np.zeros((0, 2)), "long": np.zeros(5000, np.int64)}
    np.savez_compressed(FOLDER / "compressed.npz", **several)
    np.savez(FOLDER / "savez.npz", **{name: array for name, array in several.items() if name != "long"})


if __name__ == "__main__":
    main()
