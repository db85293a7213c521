#include "tern/models/cli/options/train_help.h"

#include <algorithm>
#include <cstdio>

#include "tern/data/datasets/image_set.h"
#include "tern/data/datasets/text_set.h"
#include "tern/data/transforms/auto_augment.h"

namespace tern::cli {
namespace {

using models::ModelFamily;
using models::ModelKind;
using models::ModelPreset;
using models::TrainingRecipe;

/// "0.2", "1000"; small ones as "5e-4".
std::string short_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, number != 0 && number < 0.01 ? "%.0e" : "%g", number);
  std::string shown = text;
  if (const size_t zero = shown.find("e-0"); zero != std::string::npos) shown.erase(zero + 2, 1);
  return shown;
}

/// "50,000".
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = std::ssize(text) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string title_of(const data::NamedSet<data::ImageSet>& set) {
  return *set.training.title != 0 ? set.training.title : set.name;
}

/// A family and a preset whose recipe says something new, as --help calls them: "cnn's speedrun", "its quick".
struct NamedText {
  std::string name, text;
};
std::vector<NamedText> texts_of(const std::function<std::string(const TrainingRecipe&)>& text) {
  std::vector<NamedText> all;
  for (const ModelFamily& family : models::model_families()) {
    std::vector<std::string> said = {text({})};
    for (const ModelPreset& preset : family.presets) {
      const std::string says = preset.recipe ? text(*preset.recipe) : said[0];
      if (std::find(said.begin(), said.end(), says) != said.end()) continue;
      all.push_back({(said.size() == 1 ? family.name + "'s " : "its ") + preset.name, says});
      said.push_back(says);
    }
  }
  return all;
}

/// " (distilbert: or --preset base)": models that have the defaults of --init from scratch too.
std::string large_presets() {
  std::string all;
  for (const ModelFamily& family : models::model_families()) {
    std::vector<std::string> large;
    for (const ModelPreset& preset : family.presets)
      if (preset.large) large.emplace_back(preset.name);
    if (!large.empty()) all += (all.empty() ? " (" : "; ") + family.name + ": or --preset " + models::in_words(large);
  }
  return all.empty() ? all : all + ")";
}

}  // namespace

std::string models_help() {
  std::vector<std::string> names;
  for (const ModelFamily& family : models::model_families())
    names.push_back(family.name + (family.kind_in                      ? " (texts or images)"
                                   : family.kind == ModelKind::kImages ? " (images)"
                                                                       : " (texts)"));
  return "the model: " + models::in_words(names);
}

std::string data_help() {
  const auto& texts = data::named_text_sets();
  const auto& images = data::named_image_sets();
  return "texts: " + data::names_of(texts, true) +
         ", a .csv, .tsv or .jsonl file with a label and a text column (--task), or a folder train/LABEL/*.txt; "
         "images: " +
         data::names_of(images, true) + " or a folder train/LABEL/*.{png,jpg}; default: " + texts.front().name +
         " or " + images.front().name + " where it is on this machine, otherwise the embedded set";
}

std::string presets_help() {
  std::string help, of_sets;
  for (const ModelFamily& family : models::model_families()) {
    std::vector<std::string> sizes;
    for (const ModelPreset& preset : family.presets)
      if (*preset.size != 0) sizes.push_back(std::string(preset.name) + " (" + preset.size + ")");
    if (!sizes.empty()) help += family.name + ": " + models::in_words(sizes) + family.presets_note + "; ";
    for (const auto& set : data::named_image_sets())
      if (family.preset_of_set(set.name))
        of_sets += (of_sets.empty() ? " (" : ", ") + family.name + " for " + set.name + ": a smaller one";
  }
  return help + "default: the first of the model, unless stated" + (of_sets.empty() ? of_sets : of_sets + ")");
}

std::string epochs_help() {
  std::vector<NamedText> all = {{"images", std::to_string(TrainingRecipe().epochs)}};
  const auto add = [&](const std::string& name, int64_t epochs) {
    if (epochs > 0) all.push_back({name, std::to_string(epochs)});
  };
  for (const auto& set : data::named_image_sets()) add(title_of(set), set.training.epochs);
  for (NamedText& recipe : texts_of([](const TrainingRecipe& r) { return std::to_string(r.epochs); }))
    all.push_back(std::move(recipe));
  for (const auto& set : data::named_image_sets()) add(title_of(set), set.training.most_epochs);
  std::string help = "passes over the training rows; default: 3 with --init" + large_presets() +
                     ", otherwise by the size of the set, 2 to 10 for texts";
  for (size_t i = 0; i < all.size(); ++i)
    help += (i > 0 && all[i].text == all[i - 1].text ? " and" : ", " + all[i].text) + " for " + all[i].name;
  return help;
}

std::string lr_help() {
  std::string texts, sets;
  for (const ModelFamily& family : models::model_families())
    if (family.small_lr != ModelFamily().small_lr)
      texts += (texts.empty() ? " (" : ", ") + family.name + ": " + short_text(family.small_lr);
  for (const auto& set : data::named_image_sets())
    if (set.training.lr > 0) sets += ", " + short_text(set.training.lr) + " for " + title_of(set);
  const auto of_recipe = [](const TrainingRecipe& r) {
    return short_text(r.lr) + (r.scales_with_batch
                                   ? " times the square root of (images a step / " + std::to_string(r.batch_size) + ")"
                                   : "");
  };
  return "learning rate; default: 5e-5 with --init" + large_presets() + ", otherwise " +
         short_text(ModelFamily().small_lr) + " for texts" + (texts.empty() ? texts : texts + ")") + ", " +
         short_text(TrainingRecipe().lr) + " for images" + sets + for_recipes(of_recipe);
}

std::string notes_on(const std::string& option, const std::string& between) {
  std::string all;
  for (const ModelKind kind : {ModelKind::kImages, ModelKind::kTexts})
    for (const ModelFamily& family : models::model_families())
      for (const models::OptionNote& note : family.notes)
        if (family.kind == kind && note.option == option) all += (all.empty() ? "" : between) + note.text;
  return all;
}

std::string unmirrored() {
  std::vector<std::string> all;
  for (const auto& set : data::named_image_sets())
    if (const std::string shown = set.training.unmirrored; !shown.empty() && std::ranges::count(all, shown) == 0)
      all.push_back(shown);
  return models::in_words(all);
}

std::string sized_by_data() {
  std::vector<std::string> names;
  for (const ModelFamily& family : models::model_families())
    if (family.sized_by_data) names.push_back(family.name);
  return models::in_words(names);
}

std::string mixup_of_sets() {
  std::string all;
  for (const auto& set : data::named_image_sets())
    if (set.training.mixup > 0) all += ", for " + title_of(set) + " " + short_text(set.training.mixup);
  return all;
}

std::string for_recipes(const std::function<std::string(const TrainingRecipe&)>& text, const std::string& before,
                        const std::string& between) {
  std::string all;
  for (const NamedText& recipe : texts_of(text)) all += before + recipe.name + between + recipe.text;
  return all;
}
std::string for_recipes(double TrainingRecipe::*number) {
  return for_recipes([=](const TrainingRecipe& recipe) { return short_text(recipe.*number); });
}
std::string for_recipes(const char* TrainingRecipe::*word, const std::string& before, const std::string& between) {
  return for_recipes([=](const TrainingRecipe& recipe) { return std::string(recipe.*word); }, before, between);
}

std::string momentum_of(const TrainingRecipe& r) {
  if (!r.momentum) return "";
  return r.scales_with_batch ? "1 - " + short_text(1 - *r.momentum) + " x images a step / " +
                                   std::to_string(r.batch_size) + ", from 0 to 0.95"
                             : short_text(*r.momentum);
}

std::string batch_size_of(const TrainingRecipe& r) {
  return std::to_string(r.batch_size) + (r.scales_with_batch ? ", less with fewer than " + grouped(50 * r.batch_size) +
                                                                   " training images (50 steps an epoch), but 64 or "
                                                                   "more"
                                                             : "");
}

std::vector<std::string> augment_words() {
  std::vector<std::string> words = {"default", "none", "alternating", "autoaugment"};
  for (const auto& [name, policy] : data::kNamedPolicies) words.push_back(std::string("autoaugment-") + name);
  words.insert(words.end(), {"trivial", "randaug"});
  return words;
}

const ModelFamily& example_family(ModelKind kind) {
  const std::vector<ModelFamily>& all = models::model_families();
  return *std::find_if(all.begin(), all.end(), [&](const ModelFamily& family) { return family.kind == kind; });
}

std::string example_run() { return "runs/" + example_family().name + "-20250131-120000"; }

}  // namespace tern::cli
