/* Trains a small network on the embedded digits, in C99, with libtern alone: saves it, goes on from a checkpoint,
 * writes an ONNX file and reads it again. */

#include <stdio.h>
#include <stdlib.h>
#include <tern/tern_c.h>

static tern_status* status;

static void check(tern_code code) {
  if (code == TERN_OK) return;
  fprintf(stderr, "%s\n", tern_status_message(status));
  exit(1);
}

/* Rows begin .. end of a tensor. */
static tern_tensor* rows(tern_tensor* tensor, int64_t begin, int64_t end) {
  tern_tensor* part = NULL;
  check(tern_slice(tensor, 0, begin, end, 1, &part, status));
  return part;
}

/* The rows of a tensor in the order of `order`, int64 [n]. */
static tern_tensor* shuffled(tern_tensor* tensor, const int64_t* order, int64_t n) {
  tern_tensor *index = NULL, *result = NULL;
  check(tern_tensor_new(TERN_INT64, &n, 1, NULL, order, (size_t)n * sizeof *order, &index, status));
  check(tern_index_select(tensor, 0, index, &result, status));
  check(tern_tensor_free(index));
  return result;
}

static double accuracy(tern_model* model) {
  tern_tensor *pixels = NULL, *classes = NULL, *logits = NULL, *best = NULL, *equal = NULL, *number = NULL,
              *mean = NULL;
  double value = 0;
  check(tern_digits("test", &pixels, &classes, status));
  check(tern_set_grad_enabled(0, NULL, status));
  check(tern_model_run(model, &pixels, 1, &logits, 1, status));
  check(tern_set_grad_enabled(1, NULL, status));
  check(tern_argmax(logits, 1, &best, status));
  check(tern_binary(TERN_EQUAL, best, classes, &equal, status));
  check(tern_tensor_to(equal, NULL, TERN_FLOAT32, &number, status));
  check(tern_reduce(TERN_MEAN, number, NULL, 0, 0, &mean, status));
  check(tern_tensor_item(mean, &value, status));
  tern_tensor_free(pixels);
  tern_tensor_free(classes);
  tern_tensor_free(logits);
  tern_tensor_free(best);
  tern_tensor_free(equal);
  tern_tensor_free(number);
  tern_tensor_free(mean);
  return value;
}

int main(void) {
  enum { kEpochs = 30, kBatch = 32 };
  const int64_t sizes[] = {64, 128, 10};
  tern_model_options model_options = {0};
  tern_optimizer_options optimizer_options = {0};
  tern_loss_options loss_options = {0};
  tern_step_options step_options = {0};
  tern_model *model = NULL, *again = NULL;
  tern_optimizer* optimizer = NULL;
  tern_tensor *pixels = NULL, *classes = NULL;
  int64_t n = 0, epoch = 0, i = 0, *order = NULL;
  double reached = 0, of_file = 0;

  status = tern_status_new();
  check(tern_check_version(TERN_C_API_VERSION, status));
  check(tern_digits("train", &pixels, &classes, status));
  check(tern_tensor_numel(classes, &n, status));

  model_options.size = sizeof model_options;
  model_options.seed = 1;
  check(tern_model_mlp(sizes, 3, TERN_GELU, &model_options, &model, status));
  optimizer_options.size = sizeof optimizer_options;
  optimizer_options.name = "adamw";
  optimizer_options.lr = 2e-3;
  optimizer_options.weight_decay = 0.01;
  check(tern_optimizer_new(model, &optimizer_options, &optimizer, status));
  loss_options.size = sizeof loss_options;
  loss_options.label_smoothing = 0.05;
  step_options.size = sizeof step_options;
  step_options.max_norm = 1;

  order = malloc((size_t)n * sizeof *order);
  if (order == NULL) return 1;
  for (i = 0; i < n; ++i) order[i] = i;
  srand(1);
  check(tern_model_set_training(model, 1, status));
  for (; epoch < kEpochs; ++epoch) {
    tern_tensor *x = NULL, *y = NULL;
    double loss = 0;
    for (i = n - 1; i > 0; --i) {
      const int64_t j = rand() % (i + 1), kept = order[i];
      order[i] = order[j];
      order[j] = kept;
    }
    x = shuffled(pixels, order, n);
    y = shuffled(classes, order, n);
    for (i = 0; i < n; i += kBatch) {
      tern_tensor* batch = rows(x, i, i + kBatch);
      tern_tensor* labels = rows(y, i, i + kBatch);
      check(tern_model_train_step(model, optimizer, &batch, 1, TERN_CROSS_ENTROPY, labels, &loss_options, &step_options,
                                  &loss, status));
      tern_tensor_free(batch);
      tern_tensor_free(labels);
    }
    tern_tensor_free(x);
    tern_tensor_free(y);
    if (epoch % 10 == 9) printf("epoch %2d: loss %.4f\n", (int)epoch + 1, loss);
  }
  check(tern_model_set_training(model, 0, status));
  reached = accuracy(model);
  printf("test accuracy %.2f %%\n", 100 * reached);

  /* The loop could go on from this file, in another process. */
  check(tern_checkpoint_save("digits.checkpoint", model, NULL, optimizer, &epoch, 1, status));
  check(tern_checkpoint_load("digits.checkpoint", model, NULL, optimizer, &epoch, 1, status));
  check(tern_model_export_onnx(model, "digits.onnx", 0, NULL, 0, status));
  check(tern_model_load("digits.onnx", NULL, &again, status));
  of_file = accuracy(again);
  printf("test accuracy of digits.onnx %.2f %%\n", 100 * of_file);

  free(order);
  tern_tensor_free(pixels);
  tern_tensor_free(classes);
  tern_optimizer_free(optimizer);
  tern_model_free(model);
  tern_model_free(again);
  tern_status_free(status);
  return reached >= 0.96 && of_file >= 0.96 ? 0 : 1;
}
