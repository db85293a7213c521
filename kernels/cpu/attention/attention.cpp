#include "tern/kernels/attention.h"

#include "tern/kernels/cpu/attention/forward.h"

namespace tern::kernels::TERN_CPU {

int64_t attention_forward_workspace(Stream stream, const AttentionParams& params, DType dtype) {
  if (dtype == float64) return attention::reference_workspace(params);
  const attention::Call call(params);
  const int64_t slots = attention::slot_count(attention::task_count(params));
  return attention::bytes_with_alignment(slots * attention::ForwardScratch(call, nullptr).floats);
}

void attention_forward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v, View out,
                       View log_sum_exp, void* workspace) {
  using namespace attention;
  if (q.dtype == float64) return reference_forward(params, q, k, v, out, log_sum_exp, workspace);
  const Call call(params);
  float* base = align(workspace);
  const int64_t slot_floats = ForwardScratch(call, nullptr).floats;
  const auto run = [&]<class T>() {
    const Forward<T> forward(call, q, k, v, out, log_sum_exp, query_chunk(params));
    run_tasks(params, task_count(params),
              [&](int64_t task, int64_t slot) { forward.run(task, ForwardScratch(call, base + slot * slot_floats)); });
    const int64_t used = params.query_offsets[params.sequences];
    clear_unused(Rows<T>(out), used, out.shape[0], params.heads, params.head_dim);
    clear_unused<float>(log_sum_exp, used);
  };
  if (q.dtype == bfloat16) return run.template operator()<BFloat16>();
  if (q.dtype == float16) return run.template operator()<Float16>();
  run.template operator()<float>();
}

}  // namespace tern::kernels::TERN_CPU
