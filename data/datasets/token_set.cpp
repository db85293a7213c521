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

/// The start of a cache file; offsets [rows + 1] int64 and ids [ids] int32 follow, little-endian.
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
  return digest.hex();
}

std::string cache_key(const TextSet& set, const TokenizeOptions& options) {
  Sha256 digest;
  digest.update(std::string_view(kMagic));
  digest.update(set.content_hash());
  digest.update(sha256(options.tokenizer_key));
  for (const int64_t number : {options.max_length, int64_t{options.first_id}, int64_t{options.last_id}}) {
    digest.update(static_cast<uint64_t>(number));
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

/// The cached ids, or nothing when the file is damaged or has another key. Throws Error when it cannot be read.
std::optional<TokenSet> read_cache(const fs::path& path, const std::string& key, int64_t rows, int64_t max_length) {
  InputFile file(path.string());
  const uintmax_t size = file.bytes();
  Header header{};
  if (!read_exactly(file, &header, sizeof header)) return std::nullopt;
  const bool ours = std::memcmp(header.magic, kMagic, sizeof header.magic) == 0 &&
                    std::string_view(header.key, sizeof header.key) == key && header.rows == rows && header.ids >= 0;
  const uintmax_t room = size - std::min<uintmax_t>(size, sizeof header + (static_cast<uintmax_t>(rows) + 1) * 8);
  if (!ours || room != static_cast<uintmax_t>(header.ids) * 4 || room / 4 != static_cast<uintmax_t>(header.ids)) {
    return std::nullopt;
  }
  TokenSet tokens;
  tokens.offsets.assign(static_cast<size_t>(rows) + 1, 0);
  tokens.ids.resize(static_cast<size_t>(header.ids));
  if (!read_exactly(file, tokens.offsets.data(), tokens.offsets.size() * sizeof tokens.offsets[0]) ||
      !read_exactly(file, tokens.ids.data(), tokens.ids.size() * sizeof tokens.ids[0]) ||
      payload_digest(tokens) != std::string_view(header.payload, sizeof header.payload))
    return std::nullopt;
  bool good = tokens.offsets.front() == 0 && tokens.offsets.back() == header.ids;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t begin = tokens.offsets[row], end = tokens.offsets[row + 1];
    good = good && begin >= 0 && end >= begin && end - begin >= 2 && end - begin <= max_length;
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
  write_file_atomically(path, {start, bytes_of(tokens.offsets), bytes_of(tokens.ids)});
}

/// Rows [begin, end) encoded, framed and truncated.
TokenSet encode_rows(const TextSet& set, const Encode& encode, const TokenizeOptions& options, int64_t begin,
                     int64_t end) {
  TokenSet tokens;
  for (int64_t row = begin; row < end; ++row) {
    tokens.ids.push_back(options.first_id);
    encode(set.text(row), tokens.ids);
    const int64_t max_tokens = tokens.offsets.back() + options.max_length - 1;
    if (static_cast<int64_t>(tokens.ids.size()) > max_tokens) tokens.ids.resize(static_cast<size_t>(max_tokens));
    tokens.ids.push_back(options.last_id);
    tokens.offsets.push_back(static_cast<int64_t>(tokens.ids.size()));
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
  TERN_CHECK(options.max_length >= 2, "tokenize: max_length must be at least 2 (both special tokens), got ",
             options.max_length);
  if (options.tokenizer_key.empty()) return encode_all(set, encode, options);
  const std::string key = cache_key(set, options);
  const fs::path path = cache_path(key);
  if (path.empty()) {
    if (options.log) options.log("token ids are not cached: neither XDG_CACHE_HOME nor HOME is set");
    return encode_all(set, encode, options);
  }
  try {
    if (auto cached = read_cache(path, key, set.size(), options.max_length)) return std::move(*cached);
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

TokenSet tokenize(const TextSet& set, const WordPiece& tokenizer, int64_t max_length,
                  const std::function<void(const std::string&)>& log) {
  TokenizeOptions options;
  options.max_length = max_length;
  options.first_id = tokenizer.cls_id();
  options.last_id = tokenizer.sep_id();
  options.tokenizer_key = tokenizer.content_hash();
  options.log = log;
  return tokenize(
      set, [&](std::string_view text, std::vector<int32_t>& ids) { tokenizer.encode(text, ids); }, options);
}

}  // namespace tern::data
