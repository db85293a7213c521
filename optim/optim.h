#pragma once
// Optimizers, gradient clipping and learning rate schedules.

#include "tern/optim/adam.h"
#include "tern/optim/clip.h"
#include "tern/optim/ema.h"
#include "tern/optim/grad_scaler.h"
#include "tern/optim/rule_optimizer.h"
#include "tern/optim/schedule.h"
#include "tern/optim/sgd.h"
