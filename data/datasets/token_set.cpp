#include "tern/data/datasets/token_set.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "tern/core/io/input_file.h"
#include "tern/data/files/files.h"
#include "tern/data/files/sha256.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kChunkRows = 256;  // rows that a thread takes at a time

/// The start of a cache file; offsets [rows + 1] int64 and ids [ids] int32 follow, little-endian; and where the key is
/// that of tokens with types, types [ids] int32.
struct Header {
  char magic[8];
  char key[64];      // SHA-256 of texts, tokenizer and options; also the file's name
  char payload[64];  // SHA-256 of what follows the header
  int64_t rows;
  int64_t ids;
};
constexpr char kMagic[9] = "TERNTOK1";

template <class T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string payload_digest(const TokenSet& tokens) {
  Sha256 digest;
  digest.update(bytes_of(tokens.offsets));
  digest.update(bytes_of(tokens.ids));
  digest.update(bytes_of(tokens.types));
  return digest.hex();
}

bool has_types(const TextSet& set, const TokenizeOptions& options) {
  return set.has_pairs() && options.pair.greatest_type() > 0;
}

std::string cache_key(const TextSet& set, const TokenizeOptions& options) {
  Sha256 digest;
  digest.update(std::string_view(kMagic));
  digest.update(set.content_hash());
  digest.update(sha256(options.tokenizer_key));
  digest.update(static_cast<uint64_t>(options.max_length));
  for (const auto& ids : {options.around.before, options.around.after})
    for (const int32_t id : ids) digest.update(static_cast<uint64_t>(int64_t{id}));
  // Said only where it is not as in the first files of the cache.
  if (options.around.before.size() != 1 || options.around.after.size() != 1 || options.cuts_left) {
    digest.update(static_cast<uint64_t>(options.around.before.size()));
    digest.update(static_cast<uint64_t>(options.cuts_left));
  }
  if (set.has_pairs()) {
    for (const PairPattern::Part& part : options.pair.parts) {
      for (const int64_t value : {static_cast<int64_t>(part.source), int64_t{part.type}, std::ssize(part.ids)})
        digest.update(static_cast<uint64_t>(value));
      for (const int32_t id : part.ids) digest.update(static_cast<uint64_t>(int64_t{id}));
    }
  }
  return digest.hex();
}

/// False when the file ends too early.
bool read_exactly(InputFile& file, void* out, size_t bytes) {
  for (size_t done = 0, got = 1; done < bytes; done += got) {
    got = file.read(static_cast<char*>(out) + done, bytes - done);
    if (got == 0) return false;
  }
  return true;
}

/// The cached ids, or nothing when the file is damaged or has another key. Throws Error when it cannot be read. A row
/// has `least` to `most` tokens.
std::optional<TokenSet> read_cache(const fs::path& path, const std::string& key, int64_t rows, int64_t least,
                                   int64_t most, bool typed) {
  InputFile file(path.string());
  const uintmax_t size = file.bytes();
  Header header{};
  if (!read_exactly(file, &header, sizeof header)) return std::nullopt;
  const bool ours = std::memcmp(header.magic, kMagic, sizeof header.magic) == 0 &&
                    std::string_view(header.key, sizeof header.key) == key && header.rows == rows && header.ids >= 0;
  const uintmax_t room = size - std::min<uintmax_t>(size, sizeof header + (static_cast<uintmax_t>(rows) + 1) * 8);
  const uintmax_t bytes_of_an_id = typed ? 8 : 4;
  if (!ours || room % bytes_of_an_id != 0 || room / bytes_of_an_id != static_cast<uintmax_t>(header.ids))
    return std::nullopt;
  TokenSet tokens;
  tokens.offsets.assign(static_cast<size_t>(rows) + 1, 0);
  tokens.ids.resize(static_cast<size_t>(header.ids));
  tokens.types.resize(typed ? tokens.ids.size() : 0);
  if (!read_exactly(file, tokens.offsets.data(), tokens.offsets.size() * sizeof tokens.offsets[0]) ||
      !read_exactly(file, tokens.ids.data(), tokens.ids.size() * sizeof tokens.ids[0]) ||
      !read_exactly(file, tokens.types.data(), tokens.types.size() * sizeof tokens.types[0]) ||
      payload_digest(tokens) != std::string_view(header.payload, sizeof header.payload))
    return std::nullopt;
  bool good = tokens.offsets.front() == 0 && tokens.offsets.back() == header.ids;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t begin = tokens.offsets[row], end = tokens.offsets[row + 1];
    good = good && begin >= 0 && end >= begin && end - begin >= least && end - begin <= most;
  }
  return good ? std::optional(std::move(tokens)) : std::nullopt;
}

void write_cache(const fs::path& path, const std::string& key, const TokenSet& tokens) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  std::memcpy(header.key, key.data(), sizeof header.key);
  std::memcpy(header.payload, payload_digest(tokens).data(), sizeof header.payload);
  header.rows = tokens.size();
  header.ids = static_cast<int64_t>(tokens.ids.size());
  const std::string_view start(reinterpret_cast<const char*>(&header), sizeof header);
  write_file_atomically(path, {start, bytes_of(tokens.offsets), bytes_of(tokens.ids), bytes_of(tokens.types)});
}

void require_tokens(const TextSet& set, int64_t row, bool any) {
  TERN_CHECK(any, set.name, ": row ", row, " has no tokens, and the tokenizer puts none around a text; remove the row");
}

/// Rows [begin, end) of a set of pairs, joined and truncated.
TokenSet encode_pairs(const TextSet& set, const Encode& encode, const TokenizeOptions& options, int64_t begin,
                      int64_t end) {
  TypedIds joined;
  TokenSet tokens;
  for (int64_t row = begin; row < end; ++row) {
    std::vector<int32_t> first, second;
    encode(set.text(row), first);
    encode(set.text_pair(row), second);
    options.pair.append(std::move(first), std::move(second), static_cast<size_t>(options.max_length), options.cuts_left,
                        joined);
    require_tokens(set, row, std::ssize(joined.ids) > tokens.offsets.back());
    tokens.offsets.push_back(std::ssize(joined.ids));
  }
  tokens.ids = std::move(joined.ids);
  if (has_types(set, options)) tokens.types = std::move(joined.types);
  return tokens;
}

/// Rows [begin, end) encoded, framed and truncated.
TokenSet encode_rows(const TextSet& set, const Encode& encode, const TokenizeOptions& options, int64_t begin,
                     int64_t end) {
  if (set.has_pairs()) return encode_pairs(set, encode, options, begin, end);
  TokenSet tokens;
  std::vector<int32_t>& ids = tokens.ids;
  const auto& [before, after] = options.around;
  const auto room =
      static_cast<std::ptrdiff_t>(options.max_length) - static_cast<std::ptrdiff_t>(options.around.size());
  for (int64_t row = begin; row < end; ++row) {
    ids.insert(ids.end(), before.begin(), before.end());
    const auto first = static_cast<std::ptrdiff_t>(ids.size());
    encode(set.text(row), ids);
    const std::ptrdiff_t excess = static_cast<std::ptrdiff_t>(ids.size()) - first - room;
    if (excess > 0 && options.cuts_left)
      ids.erase(ids.begin() + first, ids.begin() + first + excess);
    else if (excess > 0)
      ids.resize(static_cast<size_t>(first + room));
    ids.insert(ids.end(), after.begin(), after.end());
    require_tokens(set, row, std::ssize(ids) > tokens.offsets.back());
    tokens.offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  return tokens;
}

/// Runs work(chunk) for every chunk on several threads; rethrows the exception of the lowest chunk.
template <class Work>
void for_chunks(int64_t chunks, int threads, const Work& work) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(chunks));
  std::atomic<int64_t> next = 0;
  std::atomic<bool> stop = false;
  const auto run = [&] {
    for (int64_t chunk; !stop && (chunk = next++) < chunks;) {
      try {
        work(chunk);
      } catch (...) {
        errors[chunk] = std::current_exception();
        stop = true;  // chunks are taken in order: every lower one has been taken
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int64_t i = 1; i < std::min<int64_t>(threads, chunks); ++i) helpers.emplace_back(run);
    run();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

TokenSet encode_all(const TextSet& set, const Encode& encode, const TokenizeOptions& options) {
  const int64_t chunks = (set.size() + kChunkRows - 1) / kChunkRows;
  std::vector<TokenSet> parts(static_cast<size_t>(chunks));
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for_chunks(chunks, threads, [&](int64_t chunk) {
    parts[chunk] =
        encode_rows(set, encode, options, chunk * kChunkRows, std::min(set.size(), (chunk + 1) * kChunkRows));
  });
  TokenSet tokens;
  size_t total = 0;
  for (const TokenSet& part : parts) total += part.ids.size();
  tokens.ids.reserve(total);
  tokens.offsets.reserve(static_cast<size_t>(set.size()) + 1);
  for (TokenSet& part : parts) {
    const int64_t base = tokens.offsets.back();
    for (int64_t row = 0; row < part.size(); ++row) tokens.offsets.push_back(base + part.offsets[row + 1]);
    tokens.ids.insert(tokens.ids.end(), part.ids.begin(), part.ids.end());
    tokens.types.insert(tokens.types.end(), part.types.begin(), part.types.end());
    part = {};
  }
  return tokens;
}

fs::path cache_path(const std::string& key) {
  const fs::path folder = cache_directory();
  return folder.empty() ? folder : folder / "tokens" / (key + ".tokens");
}

}  // namespace

std::vector<int32_t> TokenSet::lengths() const {
  std::vector<int32_t> lengths(static_cast<size_t>(size()));
  for (int64_t i = 0; i < size(); ++i) lengths[i] = static_cast<int32_t>(offsets[i + 1] - offsets[i]);
  return lengths;
}

std::string token_cache_path(const TextSet& set, const TokenizeOptions& options) {
  return options.tokenizer_key.empty() ? "" : cache_path(cache_key(set, options)).string();
}

TokenSet tokenize(const TextSet& set, const Encode& encode, const TokenizeOptions& options) {
  const size_t around = set.has_pairs() ? options.pair.added() : options.around.size();
  const auto least = std::max<int64_t>(1, static_cast<int64_t>(around));
  TERN_CHECK(options.max_length >= least, "tokenize: max_length must be at least ", least, " (the tokens around ",
             set.has_pairs() ? "two texts" : "a text", "), got ", options.max_length);
  TERN_CHECK(!set.has_pairs() || !options.pair.parts.empty(), "tokenize: ", set.name,
             " has pairs of texts; options.pair must say how they are joined");
  if (options.tokenizer_key.empty()) return encode_all(set, encode, options);
  const std::string key = cache_key(set, options);
  const fs::path path = cache_path(key);
  if (path.empty()) {
    if (options.log) options.log("token ids are not cached: neither XDG_CACHE_HOME nor HOME is set");
    return encode_all(set, encode, options);
  }
  try {
    if (auto cached = read_cache(path, key, set.size(), least, options.max_length, has_types(set, options)))
      return std::move(*cached);
  } catch (const Error&) {  // usually the file does not exist yet
  }
  TokenSet tokens = encode_all(set, encode, options);
  try {
    write_cache(path, key, tokens);
  } catch (const Error& error) {
    if (options.log) options.log(std::string("token ids are not cached: ") + error.what());
  }
  return tokens;
}

TokenizeOptions tokenize_options(const Tokenizer& tokenizer, int64_t max_length) {
  return {.max_length = max_length,
          .around = tokenizer.around(),
          .cuts_left = tokenizer.limits().cuts_left,
          .tokenizer_key = tokenizer.content_hash()};
}

TokenSet tokenize(const TextSet& set, const Tokenizer& tokenizer, int64_t max_length,
                  const std::function<void(const std::string&)>& log) {
  TokenizeOptions options = tokenize_options(tokenizer, max_length);
  options.log = log;
  if (set.has_pairs()) options.pair = tokenizer.pair();
  return tokenize(
      set, [&](std::string_view text, std::vector<int32_t>& ids) { tokenizer.encode(text, ids); }, options);
}

}  // namespace tern::data
