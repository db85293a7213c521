#pragma once
// MNIST: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-Based Learning Applied to Document Recognition", 1998;
// and Fashion-MNIST, in the same files: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST", 2017. 60,000 grey images of
// 28 x 28 pixels for training and 10,000 for testing, ten classes.

#include <optional>
#include <string>

#include "tern/data/datasets/image_set.h"

namespace tern::data {

enum class Mnist : uint8_t { kDigits, kFashion };

/// The folder of the set's files on this machine: in $TERN_DATA, otherwise in the cache, mnist or MNIST/raw,
/// fashion-mnist or FashionMNIST/raw (where torchvision puts them). Fetches nothing.
std::optional<std::string> find_mnist(Mnist set);

/// True when it holds train-images-idx3-ubyte, with or without .gz.
bool is_mnist(const std::string& folder);

/// train-images-idx3-ubyte and train-labels-idx1-ubyte (Part::kTrain), then t10k-... (Part::kTest), each with or
/// without .gz: grey repeated for red, green and blue. Throws Error with file and byte: a file that is missing or
/// damaged, images and labels of different number, sizes that differ, a label above 9.
ImageSet read_mnist(const std::string& folder, Mnist set);

/// How a set of read_mnist differs from the published one, in one line. Empty when it does not differ.
std::string mnist_difference(const ImageSet& images, Mnist set);

}  // namespace tern::data
