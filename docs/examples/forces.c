/* A force field, in C99: a network gives the energy of four atoms from their distances, the forces are its derivative
 * by the positions, and training compares them with those of a Lennard-Jones potential. The gradient of that loss is a
 * second derivative of the network.
 *
 * Energies are in units of the potential's depth, lengths in units of its width. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tern/tern_c.h>

enum { kAtoms = 4, kPairs = 6, kBatch = 64, kFeatures = 8, kSteps = 600 };

static tern_status* status;

static void check(tern_code code) {
  if (code == TERN_OK) return;
  fprintf(stderr, "%s\n", tern_status_message(status));
  exit(1);
}

/* Results of one step, freed together. */
static tern_tensor* made[64];
static int made_count;

static tern_tensor* keep(tern_code code, tern_tensor** result) {
  check(code);
  made[made_count++] = *result;
  return *result;
}
static void drop_made(void) {
  while (made_count > 0) check(tern_tensor_free(made[--made_count]));
}

static tern_tensor* unary(int32_t op, tern_tensor* x) {
  tern_tensor* result = NULL;
  return keep(tern_unary(op, x, &result, status), &result);
}
static tern_tensor* binary(int32_t op, tern_tensor* a, tern_tensor* b) {
  tern_tensor* result = NULL;
  return keep(tern_binary(op, a, b, &result, status), &result);
}
static tern_tensor* scaled(tern_tensor* x, double factor, double offset) {
  tern_tensor* result = NULL;
  return keep(tern_scale(x, factor, offset, &result, status), &result);
}
static tern_tensor* sum(tern_tensor* x, int32_t dim) {
  tern_tensor* result = NULL;
  return keep(tern_reduce(TERN_SUM, x, &dim, 1, 0, &result, status), &result);
}
static tern_tensor* reshaped(tern_tensor* x, int64_t a, int64_t b, int64_t c) {
  const int64_t shape[] = {a, b, c};
  tern_tensor* result = NULL;
  return keep(tern_reshape(x, shape, 3, &result, status), &result);
}
static tern_tensor* selected(tern_tensor* x, tern_tensor* atoms) {
  tern_tensor* result = NULL;
  return keep(tern_index_select(x, 1, atoms, &result, status), &result);
}
static tern_tensor* input(tern_dtype dtype, int64_t a, int64_t b, int64_t c, const void* data, size_t bytes) {
  const int64_t shape[] = {a, b, c};
  tern_tensor* result = NULL;
  check(tern_tensor_new(dtype, shape, c > 0 ? 3 : 1, NULL, data, bytes, &result, status));
  return result;
}

static tern_tensor *first, *second, *centers; /* the pairs' atoms, and where each feature is 1 */

/* Energies [batch, 1] of positions [batch, atoms, 3]. */
static tern_tensor* energies(tern_model* model, tern_tensor* positions) {
  tern_tensor* between = binary(TERN_SUB, selected(positions, first), selected(positions, second));
  tern_tensor* distance = unary(TERN_SQRT, sum(unary(TERN_SQUARE, between), 2));
  tern_tensor* offset = binary(TERN_SUB, reshaped(distance, kBatch, kPairs, 1), centers);
  tern_tensor* features = unary(TERN_EXP, scaled(unary(TERN_SQUARE, offset), -8, 0));
  tern_tensor* of_pairs = NULL;
  keep(tern_model_run(model, &features, 1, &of_pairs, 1, status), &of_pairs);
  return sum(of_pairs, 1);
}

/* Random positions around a square, and the forces of the potential on them. */
static void sample(double* positions, double* forces) {
  static const double corners[kAtoms][3] = {{0, 0, 0}, {1.2, 0, 0}, {0, 1.2, 0}, {1.2, 1.2, 0}};
  int i, j, d;
  for (i = 0; i < kAtoms; ++i)
    for (d = 0; d < 3; ++d) {
      positions[3 * i + d] = corners[i][d] + 0.1 * (2.0 * rand() / RAND_MAX - 1);
      forces[3 * i + d] = 0;
    }
  for (i = 0; i < kAtoms; ++i)
    for (j = 0; j < kAtoms; ++j) {
      double square = 0, sixth, factor;
      if (i == j) continue;
      for (d = 0; d < 3; ++d) square += pow(positions[3 * i + d] - positions[3 * j + d], 2);
      sixth = 1 / (square * square * square);
      factor = 24 * (2 * sixth * sixth - sixth) / square;
      for (d = 0; d < 3; ++d) forces[3 * i + d] += factor * (positions[3 * i + d] - positions[3 * j + d]);
    }
}

int main(void) {
  const int64_t from[kPairs] = {0, 0, 0, 1, 1, 2}, to[kPairs] = {1, 2, 3, 2, 3, 3}, sizes[] = {kFeatures, 32, 32, 1};
  static double positions[kBatch][3 * kAtoms], forces[kBatch][3 * kAtoms];
  double places[kFeatures], loss = 0, spread = 0, share = 0;
  tern_model_options model_options = {0};
  tern_optimizer_options optimizer_options = {0};
  tern_model* model = NULL;
  tern_optimizer* optimizer = NULL;
  int step, i, d;

  status = tern_status_new();
  for (i = 0; i < kFeatures; ++i) places[i] = 0.8 + 0.16 * i;
  first = input(TERN_INT64, kPairs, 0, 0, from, sizeof from);
  second = input(TERN_INT64, kPairs, 0, 0, to, sizeof to);
  centers = input(TERN_FLOAT64, kFeatures, 0, 0, places, sizeof places);
  model_options.size = sizeof model_options;
  model_options.dtype = TERN_FLOAT64;
  model_options.seed = 3;
  check(tern_model_mlp(sizes, 4, TERN_SILU, &model_options, &model, status));
  optimizer_options.size = sizeof optimizer_options;
  optimizer_options.lr = 5e-3;
  check(tern_optimizer_new(model, &optimizer_options, &optimizer, status));

  srand(7);
  for (step = 0; step < kSteps; ++step) {
    tern_tensor *x, *wanted, *energy, *gradient = NULL, *error = NULL;
    for (i = 0; i < kBatch; ++i) sample(positions[i], forces[i]);
    x = input(TERN_FLOAT64, kBatch, kAtoms, 3, positions, sizeof positions);
    wanted = input(TERN_FLOAT64, kBatch, kAtoms, 3, forces, sizeof forces);
    check(tern_tensor_set_requires_grad(x, 1, status));

    energy = sum(energies(model, x), 0);
    keep(tern_grad(&energy, NULL, 1, &x, 1, TERN_CREATE_GRAPH, &gradient, status), &gradient);
    keep(tern_loss(TERN_MSE, scaled(gradient, -1, 0), wanted, NULL, &error, status), &error);
    check(tern_backward(&error, NULL, 1, 0, status));
    check(tern_optimizer_step(optimizer, NULL, NULL, status));
    check(tern_optimizer_zero_grad(optimizer, status));
    if (step == kSteps / 2) check(tern_optimizer_set_lr(optimizer, 1e-3, status));

    check(tern_tensor_item(error, &loss, status));
    for (spread = 0, i = 0; i < kBatch; ++i)
      for (d = 0; d < 3 * kAtoms; ++d) spread += forces[i][d] * forces[i][d] / (3.0 * kAtoms * kBatch);
    if (step % 100 == 99) printf("step %d: forces are wrong by %.1f %%\n", step + 1, 100 * sqrt(loss / spread));
    drop_made();
    check(tern_tensor_free(x));
    check(tern_tensor_free(wanted));
  }
  share = sqrt(loss / spread);

  check(tern_model_save_weights(model, "forces.safetensors", status));
  check(tern_tensor_free(first));
  check(tern_tensor_free(second));
  check(tern_tensor_free(centers));
  check(tern_optimizer_free(optimizer));
  check(tern_model_free(model));
  check(tern_status_free(status));
  return share < 0.1 ? 0 : 1;
}
