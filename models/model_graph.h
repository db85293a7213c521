#pragma once
// Models of texts and images as graphs.

#include "tern/core/graph/graph.h"
#include "tern/models/model.h"

namespace tern::models {

/// What forward() of a model in evaluation mode computes, with named inputs of any batch size. Texts: "input_ids" int64
/// [batch, length] and, unless the model reads lengths on the host (then no sequence has padding), "attention_mask"
/// int64 [batch, length], 0 where a token is padding, and, of a model with several token_types(), "token_type_ids"
/// int64 [batch, length]. Images: "pixel_values" float32 [batch, channels, size, size], normalised. Result: "logits"
/// [batch, labels], of a classifier of tokens or a model of masked words [batch, length, labels or words], of another
/// text model "last_hidden_state" [batch, length, width]. Weights have the names of state_dict(). Throws Error in
/// training mode, and of a model of another kind.
Graph graph_of(const Model& model);

}  // namespace tern::models
