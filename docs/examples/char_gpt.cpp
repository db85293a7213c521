// A character-level GPT (Radford et al., 2019) with the parts of LLaMA (Touvron et al., arXiv:2302.13971): RMS norms
// before the sub-layers, rotary embeddings, grouped heads of keys and values, SwiGLU. It learns a text and continues
// it.
//
//   char_gpt [FILE] [NAME=NUMBER ...]     for the names see kDefaults; without FILE the sentences that Tern contains
#include <tern/tern.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

using namespace tern;

using Options = std::map<std::string, double>;
constexpr int64_t kPrompt = 8;  // characters

struct GptConfig {
  int64_t characters, width, layers, heads, kv_heads;
  int64_t context;  // no query sees keys that are further away, so that long texts have no distances that are new
};

class Block final : public nn::Module {
 public:
  Block(const nn::Scope& s, const GptConfig& c)
      : Module(s),
        norm1_(sub("norm1"), c.width),
        attention_(sub("attention"), c.width, c.heads,
                   {.bias = false,
                    .causal = true,
                    .window = c.context - 1,
                    .kv_heads = c.kv_heads,
                    .rotary = RotaryOptions{}}),
        norm2_(sub("norm2"), c.width),
        feed_(sub("feed"), c.width, 8 * c.width / 3) {}

  // where: the layout of whole sequences, or a cache and the layer's number in it.
  template <class... Where>
  Tensor forward(const Tensor& x, Where&... where) const {
    const Tensor y = x + attention_.forward(norm1_.forward(x), where...);
    return y + feed_.forward(norm2_.forward(y));
  }

 private:
  nn::RMSNorm norm1_;
  nn::PackedAttention attention_;
  nn::RMSNorm norm2_;
  nn::GatedFeedForward feed_;
};

class CharGpt final : public nn::Module {
 public:
  CharGpt(const nn::Scope& s, const GptConfig& c)
      : Module(s),
        embedding_(sub("embedding"), c.characters, c.width, {.weight_init = nn::init::normal(0, 0.02)}),
        blocks_(sub("blocks"), c.layers, c),
        norm_(sub("norm"), c.width),
        head_(sub("head"), c.width, c.characters, {.bias = false}) {}

  // ids: [tokens] of whole sequences; result: scores of the next characters, [tokens, characters].
  Tensor forward(const Tensor& ids, const SequenceLayout& layout) const {
    Tensor x = embedding_.forward(ids);
    for (const Block& block : blocks_) x = block.forward(x, layout);
    return head_.forward(norm_.forward(x));
  }
  // ids: the new tokens of each sequence; result: scores behind each of them.
  Tensor forward(const Tensor& ids, nn::KeyValueCache& cache) const {
    Tensor x = embedding_.forward(ids);
    for (int64_t i = 0; i < blocks_.size(); ++i) x = blocks_[i].forward(x, cache, i);
    return head_.forward(norm_.forward(x));
  }
  int64_t layers() const { return blocks_.size(); }

 private:
  nn::Embedding embedding_;
  nn::ModuleList<Block> blocks_;
  nn::RMSNorm norm_;
  nn::Linear head_;
};

struct Sampling {
  int64_t count = 0;       // of characters to write
  double temperature = 1;  // 0: always the most probable one
  int64_t top_k = 10;      // chooses among so many
};

// scores: [characters]
int64_t choose(const Tensor& scores, const Sampling& how, Generator& generator) {
  if (how.temperature == 0) return argmax(scores, 0).item<int64_t>();
  const SortResult best = topk(scores, std::min(how.top_k, scores.size(0)));
  const Tensor chosen = multinomial(softmax(best.values / how.temperature), 1, generator);
  return index_select(best.indices, 0, chosen).item<int64_t>();
}

// The cache keeps what attention computed of earlier characters, so that a step computes only the new one.
std::vector<int64_t> generate(const CharGpt& model, std::vector<int64_t> ids, const Sampling& how, Device device) {
  const NoGrad off;
  Generator generator(7);
  nn::KeyValueCache cache(model.layers(), /*sequences=*/1, {.device = device});
  std::vector<int64_t> fresh = ids;  // the prompt, then one character at a time
  for (int64_t i = 0; i < how.count; ++i) {
    const auto n = static_cast<int64_t>(fresh.size());
    cache.extend({n});
    const Tensor scores = model.forward(from_vector(fresh, {n}).to(device), cache);
    fresh = {choose(scores[n - 1], how, generator)};
    ids.push_back(fresh[0]);
  }
  return ids;
}

// The same without a cache: every step computes all characters again.
std::vector<int64_t> generate_anew(const CharGpt& model, std::vector<int64_t> ids, const Sampling& how, Device device) {
  const NoGrad off;
  Generator generator(7);
  for (int64_t i = 0; i < how.count; ++i) {
    const auto n = static_cast<int64_t>(ids.size());
    const Tensor scores = model.forward(from_vector(ids, {n}).to(device), packed_layout({n}, device));
    ids.push_back(choose(scores[n - 1], how, generator));
  }
  return ids;
}

// A text as numbers of its characters, which are bytes.
struct Characters {
  std::string known;  // in the order of their numbers
  std::vector<int64_t> ids;

  explicit Characters(const std::string& text) {
    bool seen[256] = {};
    for (const char c : text) seen[static_cast<unsigned char>(c)] = true;
    for (int c = 0; c < 256; ++c)
      if (seen[c]) known.push_back(static_cast<char>(c));
    ids = of(text);
  }
  std::vector<int64_t> of(const std::string& text) const {
    std::vector<int64_t> result;
    for (const char c : text) {
      TERN_CHECK(known.find(c) != std::string::npos, "char_gpt: the text has no '", c, "'");
      result.push_back(static_cast<int64_t>(known.find(c)));
    }
    return result;
  }
  std::string text(const std::vector<int64_t>& numbers) const {
    std::string result;
    for (const int64_t id : numbers) result.push_back(known[static_cast<size_t>(id)]);
    return result;
  }
};

std::string read_text(const std::string& path) {
  std::string text;
  if (path.empty()) {
    const data::TextSet sentences = data::load_text("sentences");
    for (int64_t row = 0; row < sentences.size(); ++row) text += std::string(sentences.text(row)) + "\n";
    return text;
  }
  std::ifstream file(path, std::ios::binary);
  TERN_CHECK(file.good(), "char_gpt: cannot read ", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Reads NAME=NUMBER into `options` and returns the other argument, a path.
std::string read_arguments(int argc, char** argv, Options& options) {
  std::string path;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i], name = argument.substr(0, argument.find('='));
    if (name == argument) {
      path = argument;
      continue;
    }
    TERN_CHECK(options.contains(name), "char_gpt: there is no option '", name, "'");
    options[name] = std::stod(argument.substr(name.size() + 1));
  }
  return path;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the mean loss of the last tenth of the steps.
double train(CharGpt& model, const Tensor& text, const Options& options, Device device) {
  const auto number = [&](const char* name) { return static_cast<int64_t>(options.at(name)); };
  const int64_t steps = number("steps"), batch = number("batch"), context = number("context");
  TERN_CHECK(text.numel() > std::max(context, kPrompt), "char_gpt: the text has ", text.numel(),
             " characters, more than ", std::max(context, kPrompt), " are needed");
  Generator generator(static_cast<uint64_t>(number("seed")) + 1);
  optim::AdamW optimizer(optim::no_decay_groups(model.parameters(), 0.1), {.lr = options.at("lr"), .beta2 = 0.99});
  const auto schedule = optim::cosine_schedule({.total_steps = steps, .warmup = 0.05, .min_ratio = 0.1});
  SequenceLayout layout = padded_layout(batch, context, {}, device);
  layout.positions = sequence_positions(layout, batch * context);
  const Tensor offsets = arange(0, static_cast<double>(context), 1, {.dtype = int64, .device = device});
  const DType low = number("low") != 0 ? autocast_dtype(device) : float32;
  const auto start = std::chrono::steady_clock::now();
  double sum = 0, last = 0;
  const int64_t tenth = std::max<int64_t>(1, steps / 10);
  for (int64_t step = 0; step < steps; ++step) {
    schedule.apply(optimizer, step);
    // Windows of the text that begin anywhere, and the characters that follow theirs.
    const Tensor starts = randint(0, text.numel() - context, {batch, 1}, generator, {.dtype = int64, .device = device});
    const Tensor at = (starts + offsets).reshape({-1});
    const Tensor ids = index_select(text, 0, at), next = index_select(text, 0, at + 1.0);
    const Tensor loss = autocast(device, low, [&] { return cross_entropy(model.forward(ids, layout), next); });
    loss.backward();
    optimizer.step({.max_norm = 1.0});
    optimizer.zero_grad();
    sum += loss.item<double>();
    if ((step + 1) % tenth != 0) continue;
    last = sum / static_cast<double>(tenth);
    sum = 0;
    std::printf("step %lld: loss %.3f, %.0f characters/s\n", static_cast<long long>(step + 1), last,
                static_cast<double>((step + 1) * batch * context) / seconds_since(start));
  }
  return last;
}

const Options kDefaults = {
    // Training. low: 1 computes in autocast_dtype(), 0 in float32.
    {"steps", 200},
    {"batch", 16},
    {"context", 64},
    {"lr", 4e-3},
    {"low", 1},
    {"seed", 42},
    // The model.
    {"width", 64},
    {"layers", 2},
    {"heads", 4},
    {"kv_heads", 2},
    // The text that it writes. `compare` characters are also written without a cache and must be the same.
    {"length", 300},
    {"temperature", 0.8},
    {"top_k", 10},
    {"compare", 100},
};

int main(int argc, char** argv) {
  Options options = kDefaults;
  const std::string path = read_arguments(argc, argv, options);
  const auto number = [&](const char* name) { return static_cast<int64_t>(options.at(name)); };
  const Characters characters(read_text(path));
  const Device device = best_device();
  CharGpt model(nn::Scope({.device = device, .generator = Generator(static_cast<uint64_t>(number("seed")))}),
                {.characters = static_cast<int64_t>(characters.known.size()),
                 .width = number("width"),
                 .layers = number("layers"),
                 .heads = number("heads"),
                 .kv_heads = number("kv_heads"),
                 .context = number("context")});
  const Tensor text = from_vector(characters.ids, {static_cast<int64_t>(characters.ids.size())}).to(device);
  const double loss = train(model, text, options, device);

  model.eval();
  const std::vector<int64_t> prompt(characters.ids.begin(), characters.ids.begin() + kPrompt);
  Sampling how{number("length"), options.at("temperature"), number("top_k")};
  const auto start = std::chrono::steady_clock::now();
  const std::string written = characters.text(generate(model, prompt, how, device));
  std::printf("%s\n%.0f characters/s\n", written.c_str(), static_cast<double>(how.count) / seconds_since(start));

  how.count = number("compare");
  for (const double temperature : {0.0, options.at("temperature")}) {
    how.temperature = temperature;
    TERN_CHECK(generate(model, prompt, how, device) == generate_anew(model, prompt, how, device),
               "char_gpt: the cache changed the text at temperature ", temperature);
  }
  return loss < std::log(static_cast<double>(characters.known.size())) ? 0 : 1;
}
