#pragma once
// Parts of --help that come from the rows of the model families (models/families.h) and of the sets of data
// (data::named_text_sets, data::named_image_sets), which no file of the program names.

#include <functional>
#include <string>
#include <vector>

#include "tern/models/families.h"

namespace tern::cli {

std::string models_help();
std::string data_help();
std::string presets_help();
std::string epochs_help();
std::string lr_help();

/// What the families say of the option, those of images first.
std::string notes_on(const std::string& option, const std::string& between = ", ");
/// What the images show whose mirror images are not of their class: "digits".
std::string unmirrored();
/// Families of new models that are made for the size of the images.
std::string sized_by_data();
/// --mixup of the sets that have their own: ", for digits 0.3".
std::string mixup_of_sets();

/// ", for cnn's speedrun 0.2": of each preset whose recipe says otherwise than that of all models and than those of the
/// presets before it. `text`: what a recipe says.
std::string for_recipes(const std::function<std::string(const models::TrainingRecipe&)>& text,
                        const std::string& before = ", for ", const std::string& between = " ");
std::string for_recipes(double models::TrainingRecipe::*number);
std::string for_recipes(const char* models::TrainingRecipe::*word, const std::string& before = ", for ",
                        const std::string& between = " ");
std::string momentum_of(const models::TrainingRecipe& recipe);
std::string batch_size_of(const models::TrainingRecipe& recipe);

/// The words of --augment.
std::vector<std::string> augment_words();

/// The first family of the kind, for examples.
const models::ModelFamily& example_family(models::ModelKind kind = models::ModelKind::kTexts);
/// A folder that its run may have.
std::string example_run();

}  // namespace tern::cli
