#!/usr/bin/env python3
"""Writes data sets that have the shapes of IMDB and CIFAR-10, for machines that have neither.

  make_data.py FOLDER VOCABULARY [--rows N]

FOLDER/reviews.csv          50,000 labelled texts with IMDB's lengths in tokens, cut at 512
FOLDER/aclImdb              1,000 of them as files, as bench/compare reads them
FOLDER/bert-base-uncased    the vocabulary
FOLDER/cifar-10-batches-bin 50,000 + 10,000 images in the binary layout of CIFAR-10

Every word is one token of the vocabulary, the frequent ones as frequent as in English. Texts and images repeat parts of a
few random ones, so that they compress well; a label follows from them, so that a training has something to learn. The
same bytes in every run. Standard library only.
"""
import argparse
import pathlib
import random

# Lengths of IMDB's 50,000 reviews in WordPieces with [CLS] and [SEP], truncated at 512: lower bounds of 128 equal
# parts. Mean 273.3.
QUANTILES = [
    10, 53, 60, 67, 72, 77, 82, 87, 93, 98, 104, 110, 116, 122, 128, 133, 137, 141, 143, 146, 148, 150, 152, 153, 155,
    156, 158, 159, 161, 162, 164, 165, 167, 168, 170, 171, 173, 174, 176, 178, 179, 181, 183, 185, 186, 188, 190, 192,
    194, 196, 198, 200, 202, 205, 207, 209, 211, 214, 216, 218, 221, 224, 226, 229, 231, 234, 237, 240, 243, 246, 250,
    253, 257, 260, 264, 267, 271, 275, 279, 283, 287, 291, 296, 301, 305, 310, 315, 321, 326, 332, 339, 345, 351, 357,
    364, 370, 377, 385, 393, 401, 409, 419, 427, 436, 447, 457, 469, 481, 493, 506, 512, 512, 512, 512, 512, 512, 512,
    512, 512, 512, 512, 512, 512, 512, 512, 512, 512, 512, 512]
FIRST_WORD = 1996  # of BERT's vocabulary: "the"; the ids after it are ordered by frequency
PASSAGES = 256
MAX_WORDS = 510
OPINIONS = (["bad", "worst", "boring", "waste", "poor"], ["great", "best", "wonderful", "loved", "perfect"])
IMAGE_BYTES = 3 * 32 * 32
BASE_IMAGES = 400


def words_of(vocabulary):
    """The words that WordPiece leaves whole, most frequent first."""
    tokens = vocabulary.read_text(encoding="utf-8").splitlines()[FIRST_WORD:]
    return [token for token in tokens if token.isascii() and token.isalpha() and len(token) > 1]


def passages(words, rng):
    """Texts to cut reviews from; the odd ones are positive."""
    weights = [1 / (rank + 2) for rank in range(len(words))]
    result = []
    for index in range(PASSAGES):
        text = rng.choices(words, weights, k=2 * MAX_WORDS)
        for place in range(rng.randrange(25), len(text), 25):
            text[place] = rng.choice(OPINIONS[index % 2])
        result.append(text)
    return result


def reviews(words, rows, rng):
    """(label, text) of every row; each label equally often, in random order."""
    sources = passages(words, rng)
    labels = [row % 2 for row in range(rows)]
    rng.shuffle(labels)
    for label in labels:
        part = rng.randrange(len(QUANTILES) - 1)
        count = rng.randint(QUANTILES[part], QUANTILES[part + 1]) - 2  # without [CLS] and [SEP]
        source = sources[2 * rng.randrange(PASSAGES // 2) + label]
        start = rng.randrange(len(source) - count + 1)
        yield label, " ".join(source[start:start + count])


def write_reviews(folder, words, rows, rng):
    kept = {0: 0, 1: 0}
    with open(folder / "reviews.csv", "w", encoding="utf-8") as file:
        file.write("label,text\n")
        for label, text in reviews(words, rows, rng):
            name = ("neg", "pos")[label]
            file.write(f"{name},{text}\n")
            if kept[label] < 500:
                for part in ("train", "test") if kept[label] == 0 else ("train",):
                    target = folder / "aclImdb" / part / name
                    target.mkdir(parents=True, exist_ok=True)
                    (target / f"{kept[label]}_{9 if label else 2}.txt").write_text(text, encoding="utf-8")
            kept[label] += 1


def write_images(folder, rows, rng):
    """Noise around a colour that depends on the label."""
    folder.mkdir(parents=True, exist_ok=True)
    base = []
    for index in range(BASE_IMAGES):
        colour = random.Random(index % 10).choices(range(64, 192), k=3)
        pixels = bytearray(rng.randbytes(IMAGE_BYTES))
        for channel in range(3):
            for place in range(1024 * channel, 1024 * (channel + 1)):
                pixels[place] = colour[channel] - 32 + (pixels[place] >> 2)
        base.append(bytes([index % 10]) + bytes(pixels))
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        order = [index % BASE_IMAGES for index in range(rows)]
        rng.shuffle(order)
        (folder / name).write_bytes(b"".join(base[index] for index in order))
    (folder / "batches.meta.txt").write_text(
        "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("vocabulary", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=50000, help="of reviews.csv")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    write_reviews(options.folder, words_of(options.vocabulary), options.rows, random.Random(1))
    (options.folder / "bert-base-uncased").mkdir(exist_ok=True)
    (options.folder / "bert-base-uncased/vocab.txt").write_bytes(options.vocabulary.read_bytes())
    write_images(options.folder / "cifar-10-batches-bin", 10000, random.Random(2))


if __name__ == "__main__":
    main()
