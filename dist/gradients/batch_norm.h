#pragma once

#include <memory>

#include "tern/dist/collectives/communicator.h"
#include "tern/nn/module.h"

namespace tern::dist {

/// Makes every nn::BatchNorm within `module` normalise, in training, the batches of all ranks as one (PyTorch's
/// SyncBatchNorm.convert_sync_batchnorm), for batches of a few items per rank. Statistics are then equal on all ranks,
/// and do not depend on how the items are divided. Each norm adds one all_reduce of 2 channels + 1 numbers per rank to
/// the forward pass and one of 2 channels to the backward pass, which all ranks must run in the same order. Returns the
/// number of norms.
int64_t synchronize_batch_norms(nn::Module& module, const std::shared_ptr<Communicator>& communicator);

}  // namespace tern::dist
