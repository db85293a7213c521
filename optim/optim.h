#pragma once
// Optimizers, gradient clipping and learning rate schedules.

#include "tern/optim/adadelta.h"
#include "tern/optim/adagrad.h"
#include "tern/optim/adam.h"
#include "tern/optim/clip.h"
#include "tern/optim/ema.h"
#include "tern/optim/grad_scaler.h"
#include "tern/optim/lion.h"
#include "tern/optim/lr_scheduler.h"
#include "tern/optim/lr_schedules.h"
#include "tern/optim/nadam.h"
#include "tern/optim/radam.h"
#include "tern/optim/rmsprop.h"
#include "tern/optim/rule_optimizer.h"
#include "tern/optim/schedule.h"
#include "tern/optim/sgd.h"
