// The operations of the stand-in cuDNN, computed one by one in double precision; tensors inside the graph are rounded
// to their type.

#if __has_include(<cudnn.h>)

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "tern/tests/emulator/cudnn/state.h"
#include "tern/tests/emulator/runtime/numbers.h"
#include "tern/tests/emulator/runtime/queue.h"

namespace tern::standin::dnn {
namespace {

using Index = std::array<int64_t, 5>;  // a tensor of four dimensions has a fifth of one element

struct Tensor {
  const Descriptor* descriptor;
  size_t rank;
  Index dims, strides;
  cudaDataType_t type;
  int64_t id;
  bool inside, by_value;
  const Descriptor* ragged;

  explicit Tensor(const Descriptor* d)
      : descriptor(d),
        rank(static_cast<size_t>(d->values.at(CUDNN_ATTR_TENSOR_DIMENSIONS).count)),
        dims(numbers(d, CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(numbers(d, CUDNN_ATTR_TENSOR_STRIDES)),
        type(cuda_type(d->get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE))),
        id(d->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        inside(d->has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && d->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)),
        by_value(d->has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && d->get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)),
        ragged(d->link(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC)) {}
  static Index numbers(const Descriptor* d, int attribute) {
    const auto list = d->list<int64_t>(attribute);
    return {list[0], list[1], list[2], list[3], list.size() > 4 ? list[4] : 1};
  }
  int64_t numel() const { return dims[0] * dims[1] * dims[2] * dims[3] * dims[4]; }
  bool has_channels_last() const {
    int64_t stride = dims[1];
    for (size_t d = rank; d-- > 2; stride *= dims[d])
      if (strides[d] != stride) return false;
    return strides[1] == 1 && strides[0] == stride;
  }
  /// Rows or columns, whichever axis the tokens are on.
  size_t token_axis() const { return strides[2] >= strides[3] ? 2 : 3; }
};

std::vector<const Descriptor*> operations(const Descriptor& graph) {
  std::vector<const Descriptor*> result;
  for (void* p : graph.list<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) result.push_back(static_cast<Descriptor*>(p));
  return result;
}

/// The attributes of an operation for the tensors that it reads, and for the one that it writes.
std::pair<std::vector<int>, int> ports(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
               CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
              CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
               CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
               CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC},
              CUDNN_ATTR_OPERATION_MATMUL_CDESC};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC}, CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC}, CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
    default:
      return {{}, -1};
  }
}

/// One of the three passes of a convolution: x, w and y, of which it writes one.
struct Convolution {
  Tensor x, w, y;
  std::vector<int64_t> stride, before, behind, dilation;
  float alpha, beta;
  bool good;  // the descriptor of the window

  static std::optional<Convolution> of(const Descriptor& op) {
    const auto make = [&](int x, int w, int y, int kind, int alpha, int beta) {
      const Descriptor& k = *op.link(kind);
      const auto numbers = [&](int attribute) { return k.list<int64_t>(attribute); };
      const auto dims = k.get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
      Convolution c{Tensor(op.link(x)),
                    Tensor(op.link(w)),
                    Tensor(op.link(y)),
                    numbers(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                    numbers(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                    numbers(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
                    numbers(CUDNN_ATTR_CONVOLUTION_DILATIONS),
                    op.get<float>(alpha),
                    op.get<float>(beta),
                    k.get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION &&
                        k.get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT};
      for (const auto* list : {&c.stride, &c.before, &c.behind, &c.dilation})
        c.good = c.good && static_cast<int64_t>(list->size()) == dims;
      return c;
    };
    switch (op.type) {
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return make(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return make(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return make(
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
      default:
        return std::nullopt;
    }
  }

  std::string error() const {
    const size_t rank = x.rank;
    if (!good || alpha != 1 || beta != 0 || stride.size() + 2 != rank || w.rank != rank || y.rank != rank)
      return "convolution: the window does not fit, or is not one of fp32";
    for (const Tensor* t : {&x, &w, &y})
      if (!t->has_channels_last()) return "convolution: the stand-in takes channels that are last";
    if (x.dims[0] != y.dims[0] || w.dims[0] != y.dims[1] || x.dims[1] % w.dims[1] != 0 ||
        y.dims[1] % (x.dims[1] / w.dims[1]) != 0)
      return "convolution: the images or channels do not fit";
    for (size_t d = 0; d + 2 < rank; ++d) {
      if (stride[d] < 1 || before[d] < 0 || behind[d] < 0 || dilation[d] < 1) return "convolution: a bad window";
      const int64_t space = x.dims[d + 2] + before[d] + behind[d] - dilation[d] * (w.dims[d + 2] - 1) - 1;
      if (space < 0 || space / stride[d] + 1 != y.dims[d + 2]) return "convolution: the result has another size";
    }
    return "";
  }

  /// body(places of x, w and y in memory) for each product.
  template <class Body>
  void each_product(const Body& body) const {
    const int64_t in = w.dims[1], out = y.dims[1] / (x.dims[1] / in);
    const auto flat = [](const Tensor& t, int64_t n, const Index& at) {
      return n * t.strides[0] + at[2] * t.strides[2] + at[3] * t.strides[3] + (t.rank > 4 ? at[4] * t.strides[4] : 0);
    };
    for (int64_t n = 0; n < y.dims[0]; ++n)
      each_place(y, [&](const Index& o) {
        each_place(w, [&](const Index& k) {
          Index i = {};
          for (size_t d = 0; d < stride.size(); ++d) {
            i[d + 2] = o[d + 2] * stride[d] - before[d] + k[d + 2] * dilation[d];
            if (i[d + 2] < 0 || i[d + 2] >= x.dims[d + 2]) return;
          }
          const int64_t from = flat(x, n, i), with = flat(w, 0, k), to = flat(y, n, o);
          for (int64_t c = 0; c < y.dims[1]; ++c)
            for (int64_t j = 0; j < in; ++j)
              body(static_cast<size_t>(from + c / out * in + j), static_cast<size_t>(with + c * w.strides[0] + j),
                   static_cast<size_t>(to + c));
        });
      });
  }
  template <class Body>
  static void each_place(const Tensor& t, const Body& body) {
    for (int64_t a = 0; a < t.dims[2]; ++a)
      for (int64_t b = 0; b < t.dims[3]; ++b)
        for (int64_t c = 0; c < t.dims[4]; ++c) body(Index{0, 0, a, b, c});
  }
};

/// The error in an operation's shapes; "" if there is none.
std::string check_shapes(const Descriptor& op) {
  if (const auto convolution = Convolution::of(op)) return convolution->error();
  const auto [inputs, output] = ports(op.type);
  const Index y = Tensor(op.link(output)).dims, x = Tensor(op.link(inputs[0])).dims;
  if (op.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    const Index b = Tensor(op.link(inputs[1])).dims;
    const bool good =
        x[0] == y[0] && b[0] == y[0] && x[1] == y[1] && b[1] == y[1] && x[2] == y[2] && b[3] == y[3] && x[3] == b[2];
    return good ? "" : "matmul: the shapes do not fit";
  }
  if (op.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
    return x == Index{y[0], y[1], y[3], y[2], 1} ? "" : "reshape: not a transposition";
  for (const int input : inputs) {
    if (!op.has(input)) continue;
    const Index in = Tensor(op.link(input)).dims;
    for (size_t i = 0; i < y.size(); ++i) {
      const bool reduced = op.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR && y[i] == 1;
      if (in[i] != y[i] && in[i] != 1 && !reduced) return "an input is not broadcast to the result";
    }
  }
  return "";
}

double rounded(double x, cudaDataType_t type) {
  return with_type(type, [&]<class T>() {
    return static_cast<double>(static_cast<ComputeType<T>>(T(static_cast<ComputeType<T>>(x))));
  });
}

class Run {
 public:
  Run(const Pointers& pointers, const Scalars& scalars) : pointers_(pointers), scalars_(scalars) {}

  void operation(const Descriptor& op) {
    const auto [inputs, output] = ports(op.type);
    const Tensor y(op.link(output));
    if (op.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
      reshaped_[y.descriptor] = op.link(inputs[0]);
      return;
    }
    if (const auto c = Convolution::of(op)) return convolution(*c, y);
    std::vector<Tensor> x;
    for (const int input : inputs)
      if (op.has(input)) x.emplace_back(op.link(input));
    if (op.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) return matmul(op, x[0], x[1], y);
    if (op.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) return reduce(op, x[0], y);
    const Descriptor& kind = *op.link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode = kind.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    const int64_t axis = kind.has(CUDNN_ATTR_POINTWISE_AXIS) ? kind.get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS) : 0;
    const Pointwise function = pointwise(mode);
    const bool hides_nan =
        mode == CUDNN_POINTWISE_RELU_FWD &&
        (!kind.has(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) ||
         kind.get<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) != CUDNN_PROPAGATE_NAN);
    each(y, [&](const Index& i) {
      if (mode == CUDNN_POINTWISE_GEN_INDEX) return write(y, i, static_cast<double>(i[static_cast<size_t>(axis)]));
      const double a = read(x[0], i), b = x.size() > 1 ? read(x[1], i) : 0, t = x.size() > 2 ? read(x[2], i) : 0;
      write(y, i, hides_nan && std::isnan(a) ? 0 : function(a, b, t));
    });
  }

 private:
  void convolution(const Convolution& c, const Tensor& result) {
    const Tensor* const tensors[] = {&c.x, &c.w, &c.y};
    std::vector<double> values[3];
    size_t written = 0;
    for (size_t i = 0; i < 3; ++i) {
      values[i].resize(static_cast<size_t>(tensors[i]->numel()));
      if (tensors[i]->descriptor == result.descriptor)
        written = i;
      else
        for (int64_t j = 0; j < tensors[i]->numel(); ++j)
          values[i][static_cast<size_t>(j)] = load<double>(tensors[i]->type, memory_of(*tensors[i], j), j);
    }
    c.each_product([&](size_t x, size_t w, size_t y) {
      if (written == 0) values[0][x] += values[1][w] * values[2][y];
      if (written == 1) values[1][w] += values[0][x] * values[2][y];
      if (written == 2) values[2][y] += values[0][x] * values[1][w];
    });
    each(result, [&](const Index& i) {
      int64_t at = 0;
      for (size_t d = 0; d < result.rank; ++d) at += i[d] * result.strides[d];
      write(result, i, values[written][static_cast<size_t>(at)]);
    });
  }

  using Pointwise = double (*)(double a, double b, double t);
  static Pointwise pointwise(cudnnPointwiseMode_t mode) {
    static const std::map<cudnnPointwiseMode_t, Pointwise> known = {
        {CUDNN_POINTWISE_GEN_INDEX, [](double index, double, double) { return index; }},
        {CUDNN_POINTWISE_ADD, [](double a, double b, double) { return a + b; }},
        {CUDNN_POINTWISE_SUB, [](double a, double b, double) { return a - b; }},
        {CUDNN_POINTWISE_MUL, [](double a, double b, double) { return a * b; }},
        {CUDNN_POINTWISE_DIV, [](double a, double b, double) { return a / b; }},
        {CUDNN_POINTWISE_EXP, [](double a, double, double) { return std::exp(a); }},
        {CUDNN_POINTWISE_LOG, [](double a, double, double) { return std::log(a); }},
        {CUDNN_POINTWISE_RELU_FWD, [](double a, double, double) { return a < 0 ? 0 : a; }},
        {CUDNN_POINTWISE_SWISH_FWD, [](double a, double, double) { return a / (1 + std::exp(-a)); }},
        {CUDNN_POINTWISE_GELU_FWD, [](double a, double, double) { return a * std::erfc(-a / std::sqrt(2.0)) / 2; }},
        {CUDNN_POINTWISE_CMP_LT, [](double a, double b, double) { return double(a < b); }},
        {CUDNN_POINTWISE_CMP_GE, [](double a, double b, double) { return double(a >= b); }},
        {CUDNN_POINTWISE_LOGICAL_AND, [](double a, double b, double) { return double(a != 0 && b != 0); }},
        {CUDNN_POINTWISE_BINARY_SELECT, [](double a, double b, double t) { return t != 0 ? a : b; }}};
    if (const auto found = known.find(mode); found != known.end()) return found->second;
    throw DeviceError(cudaErrorLaunchFailure, "cudnnBackendExecute: a pointwise mode that the stand-in lacks");
  }

  void matmul(const Descriptor& op, const Tensor& a, const Tensor& b, const Tensor& c) {
    const auto length = [&](int attribute, int64_t sequence, int64_t all) {
      return op.has(attribute) ? static_cast<int64_t>(read(Tensor(op.link(attribute)), {sequence, 0, 0, 0})) : all;
    };
    each(c, [&](const Index& i) {
      const bool computed = i[2] < length(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, i[0], c.dims[2]) &&
                            i[3] < length(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, i[0], c.dims[3]);
      const int64_t k = length(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, i[0], a.dims[3]);
      double sum = 0;
      for (int64_t p = 0; computed && p < k; ++p)
        sum += rounded(read(a, {i[0], i[1], i[2], p, 0}), b.type) * read(b, {i[0], i[1], p, i[3], 0});
      write(c, i, sum);
    });
  }

  void reduce(const Descriptor& op, const Tensor& x, const Tensor& y) {
    const bool takes_maximum =
        op.link(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) ==
        CUDNN_REDUCE_TENSOR_MAX;
    each(y, [&](const Index& i) {
      double result = takes_maximum ? -INFINITY : 0;
      for (int64_t p = 0; p < x.dims[3]; ++p) {
        const double value = read(x, {i[0], i[1], i[2], p, 0});
        result = takes_maximum ? std::max(result, value) : result + value;
      }
      write(y, i, result);
    });
  }

  static void each(const Tensor& t, const std::function<void(const Index&)>& f) {
    Index i;
    for (i[0] = 0; i[0] < t.dims[0]; ++i[0])
      for (i[1] = 0; i[1] < t.dims[1]; ++i[1])
        for (i[2] = 0; i[2] < t.dims[2]; ++i[2])
          for (i[3] = 0; i[3] < t.dims[3]; ++i[3])
            for (i[4] = 0; i[4] < t.dims[4]; ++i[4]) f(i);
  }

  /// The address of an element in memory; -1 after the end of a ragged sequence.
  int64_t address(const Tensor& t, const Index& i) {
    int64_t start = i[0] * t.strides[0];
    if (t.ragged) {
      const Tensor offsets(t.ragged);
      start = static_cast<int64_t>(read(offsets, {i[0], 0, 0, 0}));
      const size_t axis = t.token_axis();
      if (start + i[axis] * t.strides[axis] >= static_cast<int64_t>(read(offsets, {i[0] + 1, 0, 0, 0}))) return -1;
    }
    return start + i[1] * t.strides[1] + i[2] * t.strides[2] + i[3] * t.strides[3] + i[4] * t.strides[4];
  }

  void* memory_of(const Tensor& t, int64_t address) {
    char* const memory = static_cast<char*>(pointers_.at(t.id));
    const auto bytes = static_cast<size_t>(bytes_of(t.type));
    if (address > checked_[t.id]) {
      require_device_memory(memory, static_cast<size_t>(address + 1) * bytes, "cudnnBackendExecute: a tensor");
      checked_[t.id] = address;
    }
    return memory;
  }

  double read(const Tensor& t, Index i) {
    for (size_t d = 0; d < t.dims.size(); ++d)
      if (t.dims[d] == 1) i[d] = 0;
    if (t.by_value) return scalars_.at(t.id);
    if (const auto found = reshaped_.find(t.descriptor); found != reshaped_.end())
      return rounded(read(Tensor(found->second), {i[0], i[1], i[3], i[2], 0}), t.type);
    if (t.inside) return inside_.at(t.descriptor).at(flat(t, i));
    const int64_t at = address(t, i);
    return at < 0 ? 0 : load<double>(t.type, memory_of(t, at), at);
  }

  void write(const Tensor& t, const Index& i, double x) {
    if (t.inside) {
      std::vector<double>& values = inside_[t.descriptor];
      if (values.empty()) values.resize(static_cast<size_t>(t.numel()), NAN);
      values[flat(t, i)] = rounded(x, t.type);
      return;
    }
    const int64_t at = address(t, i);
    if (at >= 0) store(t.type, memory_of(t, at), at, x);
  }
  static size_t flat(const Tensor& t, const Index& i) {
    return static_cast<size_t>((((i[0] * t.dims[1] + i[1]) * t.dims[2] + i[2]) * t.dims[3] + i[3]) * t.dims[4] + i[4]);
  }

  const Pointers& pointers_;
  const Scalars& scalars_;
  std::map<const Descriptor*, std::vector<double>> inside_;
  std::map<const Descriptor*, const Descriptor*> reshaped_;
  std::map<int64_t, int64_t> checked_;
};

}  // namespace

std::string check_graph(const Descriptor& graph, CudnnRefuses refuses) {
  int products = 0, convolutions = 0;
  bool wide = false;
  std::set<const Descriptor*> made;
  for (const Descriptor* op : operations(graph)) {
    const auto [inputs, output] = ports(op->type);
    if (output < 0) return "an operation that the stand-in lacks";
    products += op->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    if (const auto c = Convolution::of(*op)) {
      ++convolutions;
      wide = bytes_of(c->w.type) > bytes_of(c->x.type);
    }
    for (const int input : inputs)
      if (op->has(input) && Tensor(op->link(input)).inside && made.count(op->link(input)) == 0)
        return "an operation reads what none before it has made";
    const std::string reason = check_shapes(*op);
    if (!reason.empty()) return reason;
    if (!made.insert(op->link(output)).second) return "a tensor is made twice";
  }
  const size_t count = operations(graph).size();
  if (convolutions == 0) return products == 2 || products == 5 ? "" : "neither forward nor backward of attention";
  if (convolutions > 1 || count > 4) return "more than a convolution, two additions and an activation";
  const bool refused = refuses == CudnnRefuses::kConvolutions || (refuses == CudnnRefuses::kEnds && count > 1) ||
                       (refuses == CudnnRefuses::kWideGradients && wide);
  return refused ? "refused by the test" : "";
}

int convolution_bits(const Descriptor& graph) {
  for (const Descriptor* op : operations(graph))
    if (const auto c = Convolution::of(*op)) return static_cast<int>(8 * bytes_of(c->x.type));
  return 0;
}

void outside(const Descriptor& graph, std::vector<int64_t>& in_memory, std::vector<int64_t>& by_value) {
  std::set<int64_t> seen;
  const std::function<void(const Descriptor*)> add = [&](const Descriptor* descriptor) {
    const Tensor t(descriptor);
    if (t.ragged) add(t.ragged);
    if (!t.inside && seen.insert(t.id).second) (t.by_value ? by_value : in_memory).push_back(t.id);
  };
  for (const Descriptor* op : operations(graph)) {
    const auto [inputs, output] = ports(op->type);
    for (const int input : inputs)
      if (op->has(input)) add(op->link(input));
    add(op->link(output));
  }
}

void compute(const Descriptor& graph, const Pointers& pointers, const Scalars& scalars) {
  Run run(pointers, scalars);
  for (const Descriptor* op : operations(graph)) run.operation(*op);
}

}  // namespace tern::standin::dnn

#endif
