#include "tern/core/io/pickle_reader.h"

#include <bit>
#include <charconv>
#include <cstring>

namespace tern::pickle {
namespace {

// Instructions, with the names of Python's pickletools.
constexpr char kMark = '(', kStop = '.', kPop = '0', kPopMark = '1', kDup = '2', kFloat = 'F', kInt = 'I',
               kBinInt = 'J', kBinInt1 = 'K', kLong = 'L', kBinInt2 = 'M', kNone = 'N', kPersId = 'P', kBinPersId = 'Q',
               kReduce = 'R', kString = 'S', kBinString = 'T', kShortBinString = 'U', kUnicode = 'V', kBinUnicode = 'X',
               kAppend = 'a', kBuild = 'b', kGlobal = 'c', kDict = 'd', kEmptyDict = '}', kAppends = 'e', kGet = 'g',
               kBinGet = 'h', kInst = 'i', kLongBinGet = 'j', kList = 'l', kEmptyList = ']', kObj = 'o', kPut = 'p',
               kBinPut = 'q', kLongBinPut = 'r', kSetItem = 's', kTuple = 't', kEmptyTuple = ')', kSetItems = 'u',
               kBinFloat = 'G', kProto = '\x80', kNewObj = '\x81', kTuple1 = '\x85', kTuple2 = '\x86', kTuple3 = '\x87',
               kNewTrue = '\x88', kNewFalse = '\x89', kLong1 = '\x8a', kLong4 = '\x8b', kBinBytes = 'B',
               kShortBinBytes = 'C', kShortBinUnicode = '\x8c', kBinUnicode8 = '\x8d', kBinBytes8 = '\x8e',
               kEmptySet = '\x8f', kAddItems = '\x90', kFrozenSet = '\x91', kNewObjEx = '\x92', kStackGlobal = '\x93',
               kMemoize = '\x94', kFrame = '\x95', kByteArray8 = '\x96';

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr uint32_t leads[] = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(leads[more] | c >> (6 * more));
  for (int k = more - 1; k >= 0; --k) out += static_cast<char>(0x80 | ((c >> (6 * k)) & 0x3f));
}

/// Reads up to `max_digits` digits of this base; false when there is none.
bool read_digits(std::string_view& text, size_t max_digits, int base, uint32_t& value) {
  const char* begin = text.data();
  const char* end = begin + std::min(max_digits, text.size());
  const auto [stop, error] = std::from_chars(begin, end, value, base);
  text.remove_prefix(static_cast<size_t>(stop - begin));
  return error == std::errc() && stop != begin;
}

/// Parses Python's repr of a byte string, quotes included: 'a\x00\n'. False when the text is something else.
bool unquote(std::string_view text, std::string& out) {
  if (text.size() < 2 || (text[0] != '\'' && text[0] != '"') || text.back() != text[0]) return false;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const char c = text[0];
    text.remove_prefix(1);
    if (c != '\\') {
      out += c;
      continue;
    }
    if (text.empty()) return false;
    constexpr std::string_view escapes = "abfnrtv\\'\"", meanings = "\a\b\f\n\r\t\v\\'\"";
    uint32_t value = 0;
    if (const size_t at = escapes.find(text[0]); at != std::string_view::npos) {
      value = static_cast<uint8_t>(meanings[at]);
      text.remove_prefix(1);
    } else if (text[0] == 'x') {
      text.remove_prefix(1);
      if (!read_digits(text, 2, 16, value)) return false;
    } else if (!read_digits(text, 3, 8, value)) {
      return false;
    }
    out += static_cast<char>(value);
  }
  return true;
}

/// Decodes Python's raw-unicode-escape: Latin-1 with \uXXXX and \UXXXXXXXX.
bool unescape_unicode(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const size_t digits = text.starts_with("\\u") ? 4 : text.starts_with("\\U") ? 8 : 0;
    uint32_t value = static_cast<uint8_t>(text[0]);
    text.remove_prefix(digits ? 2 : 1);
    if (digits > 0) {
      const size_t before = text.size();
      if (!read_digits(text, digits, 16, value) || before - text.size() != digits || value > 0x10ffff) return false;
    }
    append_utf8(out, value);
  }
  return true;
}

std::string_view without_line_end(std::string_view line) {
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

}  // namespace

Reader::Reader(Tree& tree, std::string where, const char* begin, const char* end, bool torch)
    : tree_(tree), where_(std::move(where)), begin_(begin), at_(begin), end_(end), torch_(torch) {}

Id Reader::read() {
  for (;;) {
    need(1);
    const char op = *at_++;
    if (op == kStop) return pop();
    if (constant(op) || counted_text(op) || collect(op) || memoize(op) || call(op) || line(op)) continue;
    if (op == kProto) {
      if (const uint64_t version = number(1); version > 5) damaged("protocol ", version, "; Tern reads 0 to 5");
    } else if (op == kFrame) {
      need(number(8));  // only a hint for buffered reading
    } else {
      --at_;
      damaged("no instruction of a pickle that Tern reads (", static_cast<int>(static_cast<uint8_t>(op)), ")");
    }
  }
}

bool Reader::constant(char op) {
  switch (op) {
    case kNone:
      add(PickleKind::kNone);
      push(last());
      return true;
    case kNewTrue:
    case kNewFalse:
      push(integer(PickleKind::kBool, op == kNewTrue));
      return true;
    case kBinInt:
      push(integer(PickleKind::kInteger, static_cast<int32_t>(static_cast<uint32_t>(number(4)))));
      return true;
    case kBinInt1:
    case kBinInt2:
      push(integer(PickleKind::kInteger, static_cast<int64_t>(number(op == kBinInt1 ? 1 : 2))));
      return true;
    case kBinFloat: {
      const double value = std::bit_cast<double>(__builtin_bswap64(number(8)));  // the only big-endian number
      add(PickleKind::kFloat).number = value;
      push(last());
      return true;
    }
    case kLong1:
    case kLong4: {
      const uint64_t bytes = number(op == kLong1 ? 1 : 4);
      if (bytes > INT32_MAX) damaged("an integer of a negative number of bytes");
      long_integer(take(bytes));
      return true;
    }
    default:
      return false;
  }
}

/// Text and bytes that begin with their length.
bool Reader::counted_text(char op) {
  const auto read = [&](int width, PickleKind kind) {
    const uint64_t bytes = number(width);
    const std::string_view view = take(bytes);
    if (kind == PickleKind::kText && !is_utf8(view)) damaged("text that is not UTF-8");
    push(text(kind, view));
    return true;
  };
  switch (op) {
    case kShortBinUnicode:
      return read(1, PickleKind::kText);
    case kBinUnicode:
      return read(4, PickleKind::kText);
    case kBinUnicode8:
      return read(8, PickleKind::kText);
    case kShortBinString:  // Python 2's str may hold any bytes
    case kShortBinBytes:
      return read(1, PickleKind::kBytes);
    case kBinString:
    case kBinBytes:
      return read(4, PickleKind::kBytes);
    case kBinBytes8:
    case kByteArray8:
      return read(8, PickleKind::kBytes);
    default:
      return false;
  }
}

/// Instructions of protocol 0 with a line of text as argument, and globals.
bool Reader::line(char op) {
  switch (op) {
    case kInt:
    case kLong: {
      std::string_view digits = without_line_end(take_line());
      if (op == kLong && digits.ends_with('L')) digits.remove_suffix(1);
      if (op == kInt && (digits == "00" || digits == "01"))
        push(integer(PickleKind::kBool, digits == "01"));
      else
        decimal(digits);
      return true;
    }
    case kFloat: {
      const std::string_view digits = without_line_end(take_line());
      double value = 0;
      const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc() || stop != digits.data() + digits.size())
        damaged("not a number: ", detail::printable(digits));
      add(PickleKind::kFloat).number = value;
      push(last());
      return true;
    }
    case kString:
    case kUnicode: {
      std::string value;
      const std::string_view raw = take_line();
      if (!(op == kString ? unquote(without_line_end(raw), value) : unescape_unicode(raw, value)))
        damaged("not a text literal: ", detail::printable(raw));
      push(own(op == kString ? PickleKind::kBytes : PickleKind::kText, std::move(value)));
      return true;
    }
    case kGlobal: {
      const std::string_view module = take_line();
      push(global(module, take_line()));
      return true;
    }
    case kPersId:
      damaged("a persistent id of protocol 0; PyTorch writes none");
    default:
      return false;
  }
}

/// Instructions for containers and their items.
bool Reader::collect(char op) {
  const auto add_marked = [&](void (Reader::*add)(Id, std::span<const Id>)) {
    const std::vector<Id> items = pop_mark();
    (this->*add)(top(), items);
    return true;
  };
  const auto push_container = [&](PickleKind kind, std::vector<Id> items) {
    push(container(kind, std::move(items)));
    return true;
  };
  switch (op) {
    case kEmptyList:
      return push_container(PickleKind::kList, {});
    case kEmptyDict:
      return push_container(PickleKind::kDict, {});
    case kEmptyTuple:
      return push_container(PickleKind::kTuple, {});
    case kEmptySet:
      return push_container(PickleKind::kSet, {});
    case kList:
      return push_container(PickleKind::kList, pop_mark());
    case kTuple:
      return push_container(PickleKind::kTuple, pop_mark());
    case kFrozenSet:
      return push_container(PickleKind::kSet, pop_mark());
    case kDict: {
      const std::vector<Id> pairs = pop_mark();
      push(container(PickleKind::kDict, {}));
      set_items(top(), pairs);
      return true;
    }
    case kTuple1:
    case kTuple2:
    case kTuple3: {
      std::vector<Id> items(static_cast<size_t>(op - kTuple1) + 1);
      for (size_t i = items.size(); i-- > 0;) items[i] = pop();
      return push_container(PickleKind::kTuple, std::move(items));
    }
    case kAppend: {
      const Id item = pop();
      append(top(), {&item, 1});
      return true;
    }
    case kSetItem: {
      const Id value = pop(), key = pop();
      const Id pair[] = {key, value};
      set_items(top(), pair);
      return true;
    }
    case kAppends:
    case kAddItems:
      return add_marked(&Reader::append);
    case kSetItems:
      return add_marked(&Reader::set_items);
    default:
      return false;
  }
}

/// Instructions for the stack and the memo.
bool Reader::memoize(char op) {
  const auto put = [&](uint64_t index) {
    if (index == memo_.size())
      memo_.push_back(top());
    else if (index < memo_.size())
      memo_[index] = top();
    else
      sparse_memo_[static_cast<uint32_t>(index)] = top();
    return true;
  };
  const auto get = [&](uint64_t index) {
    const auto sparse = sparse_memo_.find(static_cast<uint32_t>(index));
    if (index >= memo_.size() && sparse == sparse_memo_.end()) damaged("value ", index, " is used before it is there");
    push(index < memo_.size() ? memo_[index] : sparse->second);
    return true;
  };
  const auto index_of_line = [&] {
    const std::string_view digits = without_line_end(take_line());
    uint32_t index = 0;
    std::string_view rest = digits;
    if (!read_digits(rest, digits.size(), 10, index) || !rest.empty())
      damaged("not a place in the memo: ", detail::printable(digits));
    return index;
  };
  switch (op) {
    case kMark:
      marks_.push_back(stack_.size());
      return true;
    case kPop:
      pop_value_or_mark();
      return true;
    case kPopMark:
      pop_mark();
      return true;
    case kDup:
      push(top());
      return true;
    case kMemoize:
      return put(memo_.size() + sparse_memo_.size());
    case kBinPut:
    case kLongBinPut:
      return put(number(op == kBinPut ? 1 : 4));
    case kPut:
      return put(index_of_line());
    case kBinGet:
    case kLongBinGet:
      return get(number(op == kBinGet ? 1 : 4));
    case kGet:
      return get(index_of_line());
    default:
      return false;
  }
}

/// Instructions with which Python creates an object or calls a function.
bool Reader::call(char op) {
  switch (op) {
    case kReduce: {
      const Id arguments = pop(), function = pop();
      push(call_global(function, sequence(arguments, "the arguments of a call")));
      return true;
    }
    case kNewObj:
    case kNewObjEx: {
      if (op == kNewObjEx) pop();  // keyword arguments
      const Id arguments = pop(), type = pop();
      push(call_global(type, sequence(arguments, "the arguments of an object")));
      return true;
    }
    case kInst:
    case kObj: {
      Id type = kNoId;
      if (op == kInst) {
        const std::string_view module = take_line();
        type = global(module, take_line());
      }
      std::vector<Id> items = pop_mark();
      if (op == kObj) {
        if (items.empty()) damaged("an object without a class");
        type = items.front();
        items.erase(items.begin());
      }
      push(call_global(type, items));
      return true;
    }
    case kBuild: {
      const Id state = pop();
      build(top(), state);
      return true;
    }
    case kStackGlobal: {
      const Id name = pop(), module = pop();
      push(global(as_text(module, "a module's name"), as_text(name, "a class's name")));
      return true;
    }
    case kBinPersId:
      push(persistent(pop()));
      return true;
    default:
      return false;
  }
}

void Reader::need(uint64_t bytes) const {
  const auto left = static_cast<uint64_t>(end_ - at_);
  if (bytes > left) damaged("truncated: ", bytes, " more bytes are needed, there are ", left);
}

/// Reads a little-endian number.
uint64_t Reader::number(int bytes) {
  need(static_cast<uint64_t>(bytes));
  uint64_t value = 0;
  std::memcpy(&value, at_, static_cast<size_t>(bytes));
  at_ += bytes;
  return value;
}

std::string_view Reader::take(uint64_t bytes) {
  need(bytes);
  const std::string_view view(at_, bytes);
  at_ += bytes;
  return view;
}

std::string_view Reader::take_line() {
  const auto left = static_cast<size_t>(end_ - at_);
  const void* stop = left > 0 ? std::memchr(at_, '\n', left) : nullptr;
  if (!stop) damaged("truncated: a line has no end");
  const std::string_view view(at_, static_cast<size_t>(static_cast<const char*>(stop) - at_));
  at_ += view.size() + 1;
  return view;
}

/// Two's complement of any length; a number that does not fit 64 bits is stored as hexadecimal bytes.
void Reader::long_integer(std::string_view little_endian) {
  const bool negative = !little_endian.empty() && (little_endian.back() & 0x80) != 0;
  while (little_endian.size() > 8 && static_cast<uint8_t>(little_endian.back()) == (negative ? 0xff : 0) &&
         ((little_endian[little_endian.size() - 2] & 0x80) != 0) == negative)
    little_endian.remove_suffix(1);
  if (little_endian.size() <= 8) {
    uint64_t value = negative ? UINT64_MAX : 0;
    std::memcpy(&value, little_endian.data(), little_endian.size());
    push(integer(PickleKind::kInteger, static_cast<int64_t>(value)));
    return;
  }
  if (little_endian.size() > 1000) damaged("an integer of ", little_endian.size(), " bytes");
  std::string digits = negative ? "two's complement 0x" : "0x";
  for (size_t i = little_endian.size(); i-- > 0;)
    for (const int shift : {4, 0}) digits += "0123456789abcdef"[(static_cast<uint8_t>(little_endian[i]) >> shift) & 15];
  push(own(PickleKind::kBigInteger, std::move(digits)));
}

void Reader::decimal(std::string_view digits) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::invalid_argument || stop != digits.data() + digits.size())
    damaged("not an integer: ", detail::printable(digits));
  push(error == std::errc() ? integer(PickleKind::kInteger, value) : text(PickleKind::kBigInteger, digits));
}

Id Reader::pop() {
  const Id id = top();
  stack_.pop_back();
  return id;
}

Id Reader::top() const {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) damaged("the stack is empty");
  return stack_.back();
}

std::vector<Id> Reader::pop_mark() {
  if (marks_.empty()) damaged("there is no mark");
  std::vector<Id> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return items;
}

void Reader::pop_value_or_mark() {
  if (!marks_.empty() && marks_.back() == stack_.size())
    marks_.pop_back();
  else
    pop();
}

}  // namespace tern::pickle
