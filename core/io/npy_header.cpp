#include "tern/core/io/npy_header.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "tern/core/io/pickle.h"

namespace tern::detail {
namespace {

constexpr size_t kNpyAlignment = 64;
constexpr size_t kGrowthDigits = 21;  // NumPy leaves room for a longer first dimension
constexpr const char* kDescr[] = {"<f8", "<f4", "<V2", "<f2", "<i8", "<i4", "|u1", "|b1"};  // by DType

/// The literals of Python that a header consists of, read one after another.
class NpyParser {
 public:
  NpyParser(const std::string& where, std::string_view text) : where_(where), text_(text) {}

  template <class... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const {
    fail(where_, ": the header of the .npy is damaged at byte ", at_, " of '", printable(text_, 200), "': ", parts...);
  }

  bool take(char wanted) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) damaged("expected '", wanted, "'");
  }
  bool at_string() {
    skip_spaces();
    return at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"');
  }
  bool at_end() {
    skip_spaces();
    return at_ == text_.size();
  }

  std::string_view string() {
    if (!at_string()) damaged("expected a string");
    const char quote = text_[at_++];
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) damaged("the string has no end");
    const std::string_view value = text_.substr(at_, end - at_);
    if (value.find_first_of("\\\n") != std::string_view::npos) damaged("an escape in a string");
    at_ = end + 1;
    return value;
  }

  bool boolean_value() {
    skip_spaces();
    for (const std::string_view word : {"False", "True"})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    damaged("fortran_order must be True or False");
  }

  /// A tuple of sizes: (), (2,), (2, 3). Those beyond kMaxDims are counted only.
  void shape(std::vector<int64_t>& sizes, size_t& dims) {
    expect('(');
    for (bool comma = true; !take(')'); comma = take(',')) {
      if (!comma) damaged("expected a comma or ')'");
      skip_spaces();
      int64_t size = 0;
      const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error == std::errc::result_out_of_range) damaged("a size does not fit 64 bits");
      if (error != std::errc() || size < 0) damaged("expected a size >= 0");
      at_ = static_cast<size_t>(stop - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2's long
      if (++dims <= static_cast<size_t>(kMaxDims)) sizes.push_back(size);
      skip_spaces();
      if (dims == 1 && at_ < text_.size() && text_[at_] == ')') damaged("(n) is no tuple; expected (n,)");
    }
  }

  /// Skips a list or tuple: a type of several fields.
  void skip_list() {
    std::string open;
    skip_spaces();
    if (at_ == text_.size() || (text_[at_] != '[' && text_[at_] != '(')) damaged("expected a type");
    do {
      skip_spaces();
      if (at_ == text_.size()) damaged("the type has no end");
      if (at_string()) {
        string();
        continue;
      }
      const char c = text_[at_++];
      if (c == '[' || c == '(') open.push_back(c);
      if (c == ']' || c == ')') {
        if (open.empty() || open.back() != (c == ']' ? '[' : '(')) damaged("brackets that do not match");
        open.pop_back();
      }
    } while (!open.empty());
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  const std::string& where_;
  std::string_view text_;
  size_t at_ = 0;
};

/// Sets the type of a descr such as "<f4"; false when it is none of NumPy's numbers.
bool set_element(NpyHeader& header, std::string_view descr) {
  std::string_view code = descr;
  if (code.find_first_of("<>|=") == 0) {
    header.swapped = code[0] == '>';
    code.remove_prefix(1);
  }
  // ml_dtypes' bfloat16 is written as two bytes without a meaning.
  header.element = code == "V2" ? element_by_name("bfloat16") : element_by_numpy(code);
  if (!header.element && code == descr) header.element = element_by_name(code);
  return header.element != nullptr;
}

std::string problem_of(const NpyHeader& header, std::string_view descr) {
  if (header.element && header.element->known) return "";
  if (header.element) {
    const std::string_view name = header.element->name;
    const char* const advice = name == "uint64"              ? "a.astype('int64')"
                               : name.starts_with("complex") ? "numpy.stack([a.real, a.imag], -1)"
                                                             : "a.astype('float32')";
    return concatenate(name, " ", header.shape, ": Tern has no ", name, "; convert it in NumPy: ", advice);
  }
  if (descr.find('O') != std::string_view::npos)
    return "an array of Python objects, which is a pickle and is not read; give it a type in NumPy: "
           "a.astype('float32')";
  if (descr.empty()) return "an array of records; save each field as an array";
  return concatenate("the type '", printable(descr), "' is none of Tern's; convert it in NumPy: a.astype('float32')");
}

uint64_t header_length(const std::string& where, std::string_view file, size_t& begin) {
  TERN_CHECK(file.starts_with(kNpyMagic), where, ": not an array of NumPy; it begins with '",
             printable(file.substr(0, kNpyMagic.size())), "'");
  TERN_CHECK(file.size() >= 12, where, ": ", file.size(), " bytes are too few for the header of a .npy: truncated");
  const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(file[i])); };
  const uint64_t major = byte(6), minor = byte(7);
  TERN_CHECK(major >= 1 && major <= 3 && minor == 0, where, ": version ", major, ".", minor,
             " of .npy; Tern reads 1.0, 2.0 and 3.0");
  begin = major == 1 ? 10 : 12;
  return byte(8) | byte(9) << 8 | (major == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
}

}  // namespace

NpyHeader read_npy_header(const std::string& where, std::string_view file) {
  size_t begin = 0;
  const uint64_t length = header_length(where, file, begin);
  TERN_CHECK(length <= file.size() - begin, where, ": the header of the .npy claims ", length, " bytes, ",
             file.size() - begin, " follow: truncated");
  NpyHeader header;
  header.begin = begin + length;
  NpyParser parser(where, file.substr(begin, length));
  std::optional<std::string_view> descr;
  std::vector<int64_t> sizes;
  size_t dims = 0;
  bool has_order = false, has_shape = false;
  parser.expect('{');
  for (bool comma = true; !parser.take('}'); comma = parser.take(',')) {
    if (!comma) parser.damaged("expected a comma or '}'");
    const std::string_view key = parser.string();
    parser.expect(':');
    if (key == "descr" && !descr) {
      descr = "";
      if (parser.at_string())
        descr = parser.string();
      else
        parser.skip_list();
    } else if (key == "fortran_order" && !has_order) {
      has_order = true;
      header.fortran_order = parser.boolean_value();
    } else if (key == "shape" && !has_shape) {
      has_shape = true;
      parser.shape(sizes, dims);
    } else {
      parser.damaged("the key '", printable(key), "' is not expected, or occurs twice");
    }
  }
  if (!parser.at_end()) parser.damaged("text after the dict");
  for (const auto& [present, key] :
       {std::pair{descr.has_value(), "descr"}, std::pair{has_order, "fortran_order"}, std::pair{has_shape, "shape"}})
    TERN_CHECK(present, where, ": the header of the .npy has no '", key, "'");
  if (dims > static_cast<size_t>(kMaxDims)) {
    header.problem = concatenate(dims, " dimensions; Tern has at most ", kMaxDims);
    return header;
  }
  try {
    header.shape = Shape(sizes);
  } catch (const Error& error) {
    fail(where, ": the header of the .npy: ", error.what());
  }
  if (!set_element(header, *descr) || !header.element->known) {
    header.problem = problem_of(header, *descr);
    header.element = nullptr;
  }
  return header;
}

Tensor npy_tensor(const std::string& where, const NpyHeader& header, std::string_view file,
                  const std::shared_ptr<const void>& owner) {
  const ElementType& element = *header.element;
  const std::string_view bytes = file.substr(header.begin);
  int64_t needed = 0;
  TERN_CHECK(!__builtin_mul_overflow(header.shape.numel(), element.bytes, &needed) &&
                 static_cast<uint64_t>(needed) <= bytes.size(),
             where, ": ", header.shape, " of ", element.name, " does not fit the ", bytes.size(),
             " bytes after the header: truncated or damaged");
  TERN_CHECK(static_cast<uint64_t>(needed) == bytes.size(), where, ": ", bytes.size() - static_cast<uint64_t>(needed),
             " bytes follow the array ", header.shape, " of ", element.name,
             "; a file of several arrays is not read: write them with numpy.savez");
  if (needed == 0) return empty(header.shape, {.dtype = element.dtype});
  std::shared_ptr<Storage> storage;
  if (needs_conversion(element, header.swapped, bytes)) {
    storage = converted(element, header.swapped, bytes);
  } else if (reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<uintptr_t>(element.bytes) == 0) {
    // The mapping is private and inflated bytes are the reader's own: both can be written.
    storage = std::make_shared<Storage>(const_cast<char*>(bytes.data()), needed, cpu, [owner] {});
  } else {
    storage = std::make_shared<Storage>(needed, cpu);
    std::memcpy(storage->data(), bytes.data(), bytes.size());
  }
  Strides strides = contiguous_strides(header.shape);
  if (header.fortran_order) {
    int64_t step = 1;
    for (int d = 0; d < header.shape.dims(); ++d) {
      strides[static_cast<size_t>(d)] = step;
      step *= header.shape[d];
    }
  }
  return from_storage(std::move(storage), 0, header.shape, strides, element.dtype);
}

std::string npy_header(const Shape& shape, DType dtype) {
  std::string dict =
      concatenate("{'descr': '", kDescr[static_cast<int>(dtype)], "', 'fortran_order': False, 'shape': (");
  for (int d = 0; d < shape.dims(); ++d) dict += (d ? ", " : "") + std::to_string(shape[d]);
  dict += shape.dims() == 1 ? ",), }" : "), }";
  if (shape.dims() > 0) dict.append(kGrowthDigits - std::to_string(shape[0]).size(), ' ');
  std::string header(kNpyMagic);
  header += std::string_view("\1\0\0\0", 4);
  header += dict;
  header.append(kNpyAlignment - (header.size() + 1) % kNpyAlignment, ' ');
  header += '\n';
  const size_t length = header.size() - 10;  // at most some hundred bytes
  header[8] = static_cast<char>(length & 0xff);
  header[9] = static_cast<char>(length >> 8);
  return header;
}

}  // namespace tern::detail
