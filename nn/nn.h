#pragma once
// Modules, layers and initialisers.

#include "tern/nn/init.h"
#include "tern/nn/layer_decay.h"
#include "tern/nn/layers/activation.h"
#include "tern/nn/layers/bilinear.h"
#include "tern/nn/layers/containers.h"
#include "tern/nn/layers/dropout.h"
#include "tern/nn/layers/embedding.h"
#include "tern/nn/layers/feed_forward.h"
#include "tern/nn/layers/layer_norm.h"
#include "tern/nn/layers/linear.h"
#include "tern/nn/layers/multi_head_attention.h"
#include "tern/nn/layers/rms_norm.h"
#include "tern/nn/layers/shape.h"
#include "tern/nn/module.h"
