#!/usr/bin/env python3
"""Writes images.safetensors: PNG and JPEG files of every kind, and the pixels that Pillow reads from them.

    python3 tests/golden/make_images.py [--check]

For every kind NAME: NAME/file (its bytes), NAME/rgb (convert("RGB"); of 16-bit grey the upper bytes, where Pillow clips)
and, where EXIF data turns the image, NAME/upright. Pillow writes what it can; the other kinds of PNG are put together
here. All pixels come from one seed: with the same versions the file comes out bit for bit the same, which --check
verifies instead of writing. Where zlib or libjpeg differ, the committed files still decode to the committed pixels, which
--check tells apart.
"""

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import safetensors.numpy
from PIL import Image, ImageOps

OUTPUT = Path(__file__).parent / "images.safetensors"
random = np.random.Generator(np.random.PCG64(20))


def noise(*shape, high=256, dtype=np.uint8):
    return random.integers(0, high, shape, dtype=dtype)


def waves(height, width, channels):
    """Smooth, so that JPEG keeps it, with edges in both directions."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    value = 128 + 70 * np.sin(0.31 * x + 1.3 * c) + 50 * np.cos(0.23 * y - 0.7 * c)
    value[:, width // 2:] = 255 - value[:, width // 2:]
    return np.clip(value + random.normal(0, 3, value.shape), 0, 255).astype(np.uint8)


# --- PNG --------------------------------------------------------------------------------------------------------------


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed(row, bits):
    """One row of samples, of `bits` each, as bytes."""
    if bits == 16:
        return row.astype(">u2").tobytes()
    if bits == 8:
        return row.astype(np.uint8).tobytes()
    digits = ((row.reshape(-1, 1) >> np.arange(bits - 1, -1, -1)) & 1).astype(np.uint8)
    return np.packbits(digits).tobytes()


def png(samples, color_type, bits, extra=(), interlaced=False):
    """samples: [height, width, channels]. Each row has another filter, as far as rows of whole bytes allow it."""
    height, width = samples.shape[:2]
    passes = [(0, 0, 1, 1)]
    if interlaced:  # Adam7: first row and column, and their steps
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    raw = b""
    distance = max(1, samples.shape[2] * bits // 8)  # to the same byte of the pixel on the left
    for top, left, down, right in passes:
        part = samples[top::down, left::right]
        if part.size == 0:
            continue
        above = None
        for number, row in enumerate(part):
            line = np.frombuffer(packed(row.reshape(-1), bits), np.uint8).astype(int)
            above = np.zeros_like(line) if above is None else above
            before = np.concatenate([np.zeros(distance, int), line])[:line.size]
            corner = np.concatenate([np.zeros(distance, int), above])[:line.size]
            estimate = before + above - corner
            distances = np.abs(np.stack([estimate - before, estimate - above, estimate - corner]))
            paeth = np.choose(distances.argmin(axis=0), [before, above, corner])
            guess = [np.zeros_like(line), before, above, (before + above) // 2, paeth][number % 5]
            raw += bytes([number % 5]) + ((line - guess) % 256).astype(np.uint8).tobytes()
            above = line
    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(*e) for e in extra) +
            chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def saved(pixels, mode, form, **options):
    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze(), mode=mode).save(buffer, form, **options)
    return buffer.getvalue()


def oriented(value):
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def files():
    """NAME to bytes."""
    result = {}
    for name, mode, channels in [("grey", "L", 1), ("grey_alpha", "LA", 2), ("rgb", "RGB", 3), ("rgba", "RGBA", 4)]:
        result[f"png_{name}"] = saved(noise(9, 13, channels), mode, "PNG")
    result["png_exif_6"] = saved(noise(9, 13, 3), "RGB", "PNG", exif=oriented(6))
    for bits in (1, 2, 4):
        result[f"png_grey_{bits}"] = png(noise(7, 11, 1, high=1 << bits), 0, bits)
    for name, color_type, channels in [("grey", 0, 1), ("rgb", 2, 3), ("grey_alpha", 4, 2), ("rgba", 6, 4)]:
        result[f"png_{name}_16"] = png(noise(7, 11, channels, high=1 << 16, dtype=np.uint16), color_type, 16)
    for bits in (1, 2, 4, 8):
        colors = min(1 << bits, 23)
        extra = [(b"PLTE", noise(colors, 3).tobytes()), (b"tRNS", noise(colors // 2).tobytes())]
        result[f"png_palette_{bits}"] = png(noise(7, 11, 1, high=colors), 3, bits, extra)
    pixels = noise(7, 11, 3)
    key = b"".join(struct.pack(">H", value) for value in pixels[3, 4])
    result["png_rgb_transparent"] = png(pixels, 2, 8, [(b"tRNS", key)])
    result["png_interlaced"] = png(noise(21, 19, 3), 2, 8, interlaced=True)

    for name, sampling in [("444", 0), ("422", 1), ("420", 2)]:
        result[f"jpeg_{name}"] = saved(waves(37, 45, 3), "RGB", "JPEG", quality=85, subsampling=sampling)
    result["jpeg_grey"] = saved(waves(37, 45, 1), "L", "JPEG", quality=85)
    result["jpeg_cmyk"] = saved(waves(37, 45, 4), "CMYK", "JPEG", quality=85)
    result["jpeg_rgb"] = saved(waves(37, 45, 3), "RGB", "JPEG", quality=85, keep_rgb=True)
    result["jpeg_progressive"] = saved(waves(37, 45, 3), "RGB", "JPEG", quality=85, progressive=True)
    result["jpeg_restart"] = saved(waves(37, 45, 3), "RGB", "JPEG", quality=85, restart_marker_blocks=2)
    for value in range(1, 9):
        result[f"jpeg_exif_{value}"] = saved(waves(9, 14, 3), "RGB", "JPEG", quality=85, exif=oriented(value))
    return result


def decoded(name, data):
    """What Pillow reads: "rgb" and perhaps "upright"."""
    image = Image.open(io.BytesIO(data))
    if name == "png_grey_16":
        upper = (np.asarray(image).astype(int) >> 8).astype(np.uint8)
        return {"rgb": np.repeat(upper[..., None], 3, axis=2)}
    result = {"rgb": np.asarray(image.convert("RGB"))}
    if image.getexif().get(0x0112, 1) != 1:
        result["upright"] = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    return result


def main():
    tensors = {}
    for name, data in files().items():
        tensors[f"{name}/file"] = np.frombuffer(data, np.uint8)
        for kind, pixels in decoded(name, data).items():
            tensors[f"{name}/{kind}"] = np.ascontiguousarray(pixels)
    made = safetensors.numpy.save(tensors)
    if sys.argv[1:] != ["--check"]:
        OUTPUT.write_bytes(made)
        print(f"{OUTPUT}: {len(tensors)} tensors")
        return
    committed = safetensors.numpy.load_file(OUTPUT)
    wrong = [name for name in committed if name.endswith("/file")
             for kind, pixels in decoded(name[:-5], committed[name].tobytes()).items()
             if not np.array_equal(pixels, committed[f"{name[:-5]}/{kind}"])]
    if wrong or set(committed) != set(tensors):
        sys.exit(f"{OUTPUT} does not hold what Pillow reads: {wrong or sorted(set(committed) ^ set(tensors))}")
    print("the pixels are Pillow's;", "the files are the same" if made == OUTPUT.read_bytes() else "other versions write other files")


if __name__ == "__main__":
    main()
