#pragma once
// All differentiable ops, by family.

#include "tern/core/ops/attention.h"
#include "tern/core/ops/dropout.h"
#include "tern/core/ops/indexing.h"
#include "tern/core/ops/linear.h"
#include "tern/core/ops/loss.h"
#include "tern/core/ops/matmul.h"
#include "tern/core/ops/norm.h"
#include "tern/core/ops/pointwise.h"
#include "tern/core/ops/random.h"
#include "tern/core/ops/rearrange.h"
#include "tern/core/ops/reduce.h"
#include "tern/core/ops/row_chain.h"
#include "tern/core/ops/softmax.h"
#include "tern/core/ops/sort.h"
#include "tern/core/ops/statistics.h"
#include "tern/core/ops/vector_norm.h"
