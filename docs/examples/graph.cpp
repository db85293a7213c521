// Records a model as a graph, looks at it, runs it at another batch size, and takes its derivative.

#include <tern/tern.h>

#include <iostream>

using namespace tern;

int main() {
  const nn::Scope scope({.generator = Generator(42)});
  const nn::Linear first(scope, 4, 8), second(scope, 8, 1);
  const auto energy = [&](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{sum(second.forward(tanh(first.forward(in[0]))))};
  };

  Generator generator(7);
  const Graph graph = trace(energy, {randn({3, 4}, generator)},
                            {.dynamic = {{.input = 0, .dim = 0, .name = "atoms"}}, .input_names = {"x"}});
  std::cout << graph;
  std::cout << "peak memory for 1000 atoms: " << graph.plan({1000}).peak_bytes << " bytes\n";

  const Graph with_forces = differentiate(graph, {"x"});
  const std::vector<Tensor> results = with_forces.run({randn({5, 4}, generator)});
  std::cout << "energy " << results[0].item<float>() << ", forces " << -results[1] << "\n";
}
