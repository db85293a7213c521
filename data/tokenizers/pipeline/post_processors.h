#pragma once
// The post-processors of a tokenizer.json, and its truncation and padding.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tern/data/tokenizers/pair_pattern.h"
#include "tern/data/tokenizers/pipeline/json_field.h"
#include "tern/data/tokenizers/tokenizer.h"

namespace tern::data {

/// What is put around a sequence: Sequence's parts are applied one after another.
class PostProcessor {
 public:
  PostProcessor() = default;
  /// Throws Error for a post-processor that Tern does not have, naming it.
  explicit PostProcessor(const JsonField& field);

  /// The ids with the special tokens; without them if `special` is false (a template can repeat the sequence).
  void apply(std::vector<std::int32_t>& ids, bool special) const;
  /// The special tokens before and behind a sequence. Throws Error, which begins with `name`, if a template leaves out
  /// the sequence.
  TokensAround around(const std::string& name) const;
  /// What becomes of two sequences. Throws Error, which begins with `name`, if a template does not say it, and for more
  /// than one post-processor that adds tokens.
  PairPattern pair(const std::string& name) const;
  /// The number of special tokens.
  std::size_t added() const { return added_; }
  /// Checks that every id is that of a token: calls check(id).
  template <class Check>
  void for_each_id(const Check& check) const {
    for (const std::vector<Part>& step : steps_)
      for (const Part& part : step)
        for (const std::int32_t id : part.ids) check(id);
    for (const PairPattern& pair : pairs_)
      for (const PairPattern::Part& part : pair.parts)
        for (const std::int32_t id : part.ids) check(id);
  }

 private:
  struct Part {
    bool sequence;
    std::vector<std::int32_t> ids;
  };
  void read(const JsonField& field);
  void read_template(const JsonField& field);

  std::vector<std::vector<Part>> steps_;
  std::vector<PairPattern> pairs_;  // of each step; empty where a template has none
  std::size_t added_ = 0;
};

/// The member "truncation".
struct Truncation {
  std::size_t max_length;
  bool left;
  explicit Truncation(const JsonField& field);
  /// Cuts a sequence to `length` ids.
  static void cut(std::vector<std::int32_t>& ids, std::size_t length, bool left);
};

/// The member "padding".
struct Padding {
  std::size_t fixed = 0;     ///< the least length; 0: that of the sequence
  std::size_t multiple = 0;  ///< of which the length is a multiple; 0: of none
  bool left = false;
  std::int32_t id = 0;
  explicit Padding(const JsonField& field);
  void apply(std::vector<std::int32_t>& ids) const;
};

}  // namespace tern::data
