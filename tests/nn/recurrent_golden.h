#pragma once
// PyTorch's numbers of recurrent layers and cells (tests/golden/recurrent.json), for any device.

#include "tern/nn/nn.h"
#include "tern/tests/core/golden.h"

namespace tern::test::golden {

/// Loads the module's parameters from `in`, which then has the parameters, whose gradients are compared.
inline void load_parameters(nn::Module& module, Tensors& in) {
  StateView state;
  for (const NamedTensor& entry : module.state_dict()) {
    ASSERT_TRUE(in.contains(entry.name)) << entry.name;
    state.push_back({entry.name, in[entry.name].detach()});
  }
  module.load_state_dict(state);
  for (const NamedTensor& parameter : module.parameters()) in[parameter.name] = parameter.tensor;
}

inline Tensor flat(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors)
    if (t.defined()) parts.push_back(t.flatten());
  return cat(parts);
}

inline Tensor run_layers(nn::RecurrentLayers& module, Device device, const Json& params, Tensors& in) {
  load_parameters(module, in);
  const auto moved = [&](const char* name) {
    const Tensor t = optional(in, name);
    return t.defined() ? t.to(device) : t;
  };
  const nn::RecurrentState initial{moved("h0"), moved("c0")};
  const Tensor x = moved("x");
  const auto lengths = params["lengths"].get<std::vector<int64_t>>();
  const nn::RecurrentOutput found = lengths.empty() ? module.forward(x, initial) : module.forward(x, lengths, initial);
  return flat({found.output, found.state.hidden, found.state.cell});
}

inline nn::RecurrentActivation activation_of(const Json& params) {
  return params.value("nonlinearity", "tanh") == "relu" ? nn::RecurrentActivation::kRelu
                                                        : nn::RecurrentActivation::kTanh;
}

inline Tensor run_cell(const std::string& op, const nn::Scope& s, Device device, const Json& params, Tensors& in) {
  const int64_t width = params["in"], hidden = params["hidden"];
  const bool bias = params.value("bias", true);
  const auto run = [&](auto& cell, auto state) {
    load_parameters(cell, in);
    for (const Tensor& x : in.at("x").to(device).unbind()) state = cell.forward(x, state);
    return state;
  };
  if (op == "lstm_cell") {
    nn::LSTMCell cell(s, width, hidden, bias);
    const nn::RecurrentState state = run(cell, nn::RecurrentState{in.at("h0").to(device), in.at("c0").to(device)});
    return flat({state.hidden, state.cell});
  }
  if (op == "gru_cell") {
    nn::GRUCell cell(s, width, hidden, bias);
    return flat({run(cell, in.at("h0").to(device))});
  }
  nn::RNNCell cell(s, width, hidden, bias, activation_of(params));
  return flat({run(cell, in.at("h0").to(device))});
}

/// LSTMOptions or RNNOptions with the members that all kinds have.
template <class Options>
Options with_options(const nn::RecurrentOptions& o) {
  return {.layers = o.layers,
          .bidirectional = o.bidirectional,
          .dropout = o.dropout,
          .batch_first = o.batch_first,
          .bias = o.bias};
}

/// A case of recurrent.json on a device; the result is on the CPU.
inline Tensor run_recurrent(DType dtype, Device device, const std::string& op, const Json& params, Tensors& in) {
  const nn::Scope s({.device = device, .dtype = dtype, .generator = fresh_generator()});
  if (op.ends_with("cell")) return run_cell(op, s, device, params, in).to(cpu);
  const nn::RecurrentOptions options{.layers = params.value("num_layers", 1),
                                     .bidirectional = params.value("bidirectional", false),
                                     .batch_first = params.value("batch_first", false),
                                     .bias = params.value("bias", true)};
  const int64_t width = params["in"], hidden = params["hidden"];
  if (op == "lstm") {
    auto lstm = with_options<nn::LSTMOptions>(options);
    lstm.proj_size = params.value("proj_size", 0);
    nn::LSTM module(s, width, hidden, lstm);
    return run_layers(module, device, params, in).to(cpu);
  }
  if (op == "gru") {
    nn::GRU module(s, width, hidden, options);
    return run_layers(module, device, params, in).to(cpu);
  }
  auto rnn = with_options<nn::RNNOptions>(options);
  rnn.nonlinearity = activation_of(params);
  nn::RNN module(s, width, hidden, rnn);
  return run_layers(module, device, params, in).to(cpu);
}

}  // namespace tern::test::golden
