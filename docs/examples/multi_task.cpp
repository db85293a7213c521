// Two tasks on one body: whether a sentence is positive, and which site it is from. The body learns the sites first;
// then its lowest block is frozen, and groups of parameters learn both tasks at different rates.
#include <tern/tern.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace tern;

constexpr double kRate = 4e-3;  // of the layers right below the heads

class Block final : public nn::Module {
 public:
  Block(const nn::Scope& s, int64_t width)
      : Module(s),
        norm1_(sub("norm1"), width),
        attention_(sub("attention"), width, /*heads=*/4),
        norm2_(sub("norm2"), width),
        feed_(sub("feed"), width, 2 * width),
        dropout_(sub("dropout"), 0.1) {}
  Tensor forward(const Tensor& x, const SequenceLayout& layout) const {
    const Tensor y = x + dropout_.forward(attention_.forward(norm1_.forward(x), layout), layout.row_keys);
    return y + dropout_.forward(feed_.forward(norm2_.forward(y)), layout.row_keys);
  }

 private:
  nn::LayerNorm norm1_;
  nn::PackedAttention attention_;
  nn::LayerNorm norm2_;
  nn::FeedForward feed_;
  nn::Dropout dropout_;
};

class Net final : public nn::Module {
 public:
  Net(const nn::Scope& s, int64_t vocabulary, int64_t width = 64)
      : Module(s),
        word_(sub("word"), vocabulary, width, {.weight_init = nn::init::normal(0, 0.02)}),
        blocks_(sub("blocks"), 2, width),
        norm_(sub("norm"), width),
        heads_(sub("heads")) {
    heads_.emplace("sentiment", width, 2);
    heads_.emplace("site", width, 3);
  }
  // [sequences, width]
  Tensor body(const data::TokenInput& input) const {
    Tensor x = word_.forward(input.tokens);
    for (const Block& block : blocks_) x = block.forward(x, input.layout);
    return norm_.forward(index_select(x, 0, input.first_rows));
  }
  Tensor head(const std::string& task, const Tensor& features) const { return heads_[task].forward(features); }

 private:
  nn::Embedding word_;
  nn::ModuleList<Block> blocks_;
  nn::LayerNorm norm_;
  nn::ModuleDict<nn::Linear> heads_;
};

// Each sentence gets two labels: [sequences, 2]. The set has 1,000 sentences of Amazon, then of IMDB, then of Yelp.
void add_sites(data::TokenBatch& batch) {
  std::vector<int64_t> sites;
  for (const int32_t row : batch.rows) sites.push_back(row / 1000);
  batch.labels = stack({batch.labels, from_vector(sites, {batch.sequences()})}, 1);
}

struct Sentences {
  data::TextSet texts = data::load_text("sentences");
  data::WordPiece tokenizer = data::WordPiece::from_embedded();
  std::shared_ptr<const data::TokenSet> tokens =
      std::make_shared<const data::TokenSet>(data::tokenize(texts, tokenizer, /*max_length=*/64));
  data::Split split = data::make_split(texts, "80/10/10", "", /*seed=*/42);

  data::TokenLoader loader(const std::vector<int32_t>& rows, int64_t epochs) const {
    const data::BatchPlan plan(rows, tokens->lengths(), {.batch_tokens = 1024, .seed = 42}, epochs);
    return {tokens, texts.labels, plan, {.pad_id = tokenizer.pad_id(), .transform = add_sites}};
  }
};

struct Weights {
  double sentiment, site;
};
struct Accuracies {
  double sentiment, site;
};

void train(Net& net, const data::TokenLoader& loader, optim::Optimizer& optimizer, const Weights& weights) {
  net.train();
  const auto schedule = optim::linear_schedule({.total_steps = loader.plan().total_steps(), .warmup = 0.1});
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < loader.epochs(); ++epoch)
    for (const auto& batch : data::DeviceBatches(loader.epoch(epoch), net.device())) {
      schedule.apply(optimizer, step++);
      const Tensor features = net.body(batch);
      const auto labels = batch.labels.unbind(1);
      const Tensor loss = cross_entropy(net.head("sentiment", features), labels[0]) * weights.sentiment +
                          cross_entropy(net.head("site", features), labels[1]) * weights.site;
      loss.backward();
      optimizer.step({.max_norm = 1.0});
      optimizer.zero_grad();
    }
}

// Layers further down learn more slowly; the heads, which are new, faster. Matrices decay, biases and norms do not.
std::vector<optim::ParameterGroup> groups(const Net& net, double lr) {
  std::vector<optim::ParameterGroup> result;
  for (const nn::LayerGroup& layer :
       nn::layer_decay_groups(net, {.blocks = "blocks", .below = {"word.*"}, .decay = 0.5})) {
    optim::ParameterGroup body{.lr = lr * layer.lr_scale, .weight_decay = layer.decays ? 0.01 : 0.0}, heads = body;
    heads.lr = 3 * lr;
    for (const NamedTensor& entry : layer.parameters)
      (nn::matches_pattern(entry.name, "heads.*") ? heads : body).parameters.push_back(entry);
    for (const auto& group : {body, heads})
      if (!group.parameters.empty()) result.push_back(group);
  }
  return result;
}

Accuracies evaluate(Net& net, const data::TokenLoader& loader) {
  const NoGrad off;
  net.eval();
  nn::Accuracy sentiment, site;
  for (const auto& batch : data::DeviceBatches(loader.epoch(0), net.device())) {
    const Tensor features = net.body(batch);
    const auto labels = batch.labels.unbind(1);
    sentiment.update(net.head("sentiment", features), labels[0]);
    site.update(net.head("site", features), labels[1]);
  }
  return {sentiment.compute(), site.compute()};
}

// What predicting the most frequent label of each task gives.
Accuracies majority(const data::TokenLoader& loader) {
  std::vector<Tensor> labels;
  for (const auto& batch : loader.epoch(0)) labels.push_back(batch.labels);
  const Tensor all = cat(labels);
  const auto share = [&](int task, int64_t classes) {
    return max(mean(one_hot(all.select(1, task), classes).to(float32), {0})).item<double>();
  };
  return {share(0, 2), share(1, 3)};
}

// The frozen block has the same bits, every other parameter has changed.
void check_changes(const Net& net, const StateView& before) {
  for (const NamedTensor& entry : net.parameters()) {
    const bool same = all(eq(entry.tensor, find(before, entry.name))).item<bool>();
    const bool frozen = nn::matches_pattern(entry.name, "blocks.0.*");
    TERN_CHECK(same == frozen, "multi_task: ", entry.name, frozen ? " is frozen and has changed" : " has not changed");
  }
}

void check_rates(const optim::Optimizer& optimizer) {
  const std::vector<std::pair<std::string, double>> expected = {
      {"word.*", kRate / 8}, {"blocks.1.*", kRate / 2}, {"norm.*", kRate}, {"heads.*", 3 * kRate}};
  for (const optim::GroupState& group : optimizer.param_groups())
    for (const NamedTensor& entry : group.parameters)
      for (const auto& [pattern, rate] : expected)
        TERN_CHECK(!nn::matches_pattern(entry.name, pattern) || group.lr == rate, "multi_task: ", entry.name,
                   " has the rate ", group.lr, ", expected ", rate);
}

int main() try {
  const Sentences sentences;
  Net net(nn::Scope({.device = best_device(), .generator = Generator(42)}), sentences.tokenizer.vocab_size());
  const data::TokenLoader test = sentences.loader(sentences.split.test, 1);

  optim::AdamW first(optim::no_decay_groups(net.parameters(), 0.01), {.lr = 3e-3});
  train(net, sentences.loader(sentences.split.train, 3), first, {.sentiment = 0, .site = 1});
  std::printf("sites alone: site %.3f\n", evaluate(net, test).site);

  net.freeze("blocks.0.*");
  StateView before;
  for (const NamedTensor& entry : net.parameters()) before.push_back({entry.name, entry.tensor.detach().clone()});
  optim::AdamW second(groups(net, kRate));
  check_rates(second);
  train(net, sentences.loader(sentences.split.train, 4), second, {.sentiment = 1, .site = 0.3});
  check_changes(net, before);

  const Accuracies reached = evaluate(net, test), least = majority(test);
  std::printf("both: sentiment %.3f, site %.3f; the most frequent labels %.3f, %.3f\n", reached.sentiment, reached.site,
              least.sentiment, least.site);
  TERN_CHECK(reached.sentiment > least.sentiment + 0.15, "multi_task: the sentiment's accuracy is ", reached.sentiment);
  TERN_CHECK(reached.site > least.site + 0.3, "multi_task: the site's accuracy is ", reached.site);
  return 0;
} catch (const Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}
