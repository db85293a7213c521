/* Tern for C, and for every language that calls C: #include <tern/tern_c.h>, link libtern. C99; docs/c_api.md is the
 * guide, docs/examples has programs in C and Fortran.
 *
 *   tern_status* status = tern_status_new();
 *   tern_model* model = NULL;
 *   if (tern_model_load("model.onnx", NULL, &model, status) != TERN_OK)
 *     fprintf(stderr, "%s\n", tern_status_message(status));
 *
 * Results. Every call but the few that return a text or a new status returns a code, TERN_OK or an error, and takes a
 * status as its last argument, which may be NULL: it then holds the code and a message. Nothing is thrown, and no input
 * ends the process. What a call returns through pointers is NULL, or unchanged where it is no handle, after an error.
 * Optional pointers are named so ("or NULL"); any other NULL is TERN_ERROR_ARGUMENT.
 *
 * Handles. A tern_status, tern_tensor, tern_tensors, tern_model or tern_optimizer is made by a call that returns it
 * through a pointer, and is freed once, by the function ..._free of its kind, whatever was made of it: handles share
 * what they need. To free NULL does nothing. A handle is a number, not an address. One that was freed, or is of another
 * kind, or is none, gives TERN_ERROR_HANDLE.
 *
 * Threads. A handle is used by one thread at a time, reading included; another thread may use it afterwards. A call
 * that meets a handle, or the model of an optimizer, in use by another thread gives TERN_ERROR_BUSY and does nothing.
 * Different handles may be used at the same time, except those on the same memory (parameters of one model, views,
 * results of detach), which is not detected. Gradient mode is per thread. The work of one call is shared among the
 * threads of Tern's pool.
 *
 * Texts are UTF-8 and end with a zero. Texts that a call returns belong to the handle and live until it is used by
 * another call that changes it, or is freed. Shapes are int64_t, counts int64_t or int32_t, never negative.
 *
 * Versions. Functions are added and never changed; TERN_C_API_VERSION counts the additions. A struct of options begins
 * with its size, which a program sets to the sizeof that it was compiled with; members are only appended, and all
 * zeros but the size are the defaults. A size of no version of the library gives TERN_ERROR_VERSION.
 */
#ifndef TERN_C_H
#define TERN_C_H

#include <stddef.h>
#include <stdint.h>

#define TERN_C_API_VERSION 1

#if defined(__GNUC__)
#define TERN_C_API __attribute__((visibility("default")))
#else
#define TERN_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Codes, versions, status ---- */

typedef int32_t tern_code;
enum {
  TERN_OK = 0,
  TERN_ERROR_ARGUMENT = 1, /* NULL, a count or a number out of range */
  TERN_ERROR_HANDLE = 2,   /* freed, of another kind, or no handle */
  TERN_ERROR_BUSY = 3,     /* in use by another thread */
  TERN_ERROR_VERSION = 4,  /* the program was compiled for what this library does not have */
  TERN_ERROR_FAILED = 5,   /* what Tern reports: shapes, files, devices; the message says all */
  TERN_ERROR_MEMORY = 6,   /* none left, on the host or the device */
  TERN_ERROR_INTERNAL = 7  /* a defect of Tern */
};

typedef struct tern_status tern_status;
typedef struct tern_tensor tern_tensor;
typedef struct tern_tensors tern_tensors; /* a list of named tensors */
typedef struct tern_model tern_model;
typedef struct tern_optimizer tern_optimizer;

/* TERN_C_API_VERSION of the library. */
TERN_C_API int32_t tern_c_api_version(void);
/* Give it TERN_C_API_VERSION: TERN_ERROR_VERSION when the library is older than the header, or the number is no
 * version.
 */
TERN_C_API tern_code tern_check_version(int32_t version, tern_status* status);
/* "TERN_ERROR_BUSY"; "unknown" for a number that is no code. Lives for ever. */
TERN_C_API const char* tern_code_name(tern_code code);

/* NULL without memory. */
TERN_C_API tern_status* tern_status_new(void);
/* Of the last call that was given this status. TERN_ERROR_HANDLE and a text that says so if it is none. */
TERN_C_API tern_code tern_status_code(tern_status* status);
TERN_C_API const char* tern_status_message(tern_status* status);
TERN_C_API tern_code tern_status_free(tern_status* status);

/* ---- Tensors ---- */

typedef int32_t tern_dtype;
enum {
  TERN_DTYPE_DEFAULT = 0, /* of options: what is written there */
  TERN_FLOAT64 = 1,
  TERN_FLOAT32 = 2,
  TERN_BFLOAT16 = 3,
  TERN_FLOAT16 = 4,
  TERN_INT64 = 5,
  TERN_INT32 = 6,
  TERN_UINT8 = 7,
  TERN_BOOL = 8 /* a byte, 0 or 1 */
};

/* shape: ndim sizes, or NULL where ndim is 0; ndim at most 8. device: "cpu", "cuda", "cuda:1", or NULL for the CPU.
 * Elements are in C's order: the last index changes first (Fortran's array a(n, m) is the shape {m, n}). */

/* A copy of `bytes` bytes at data, which must be those of the shape; zeros where data is NULL and bytes 0. */
TERN_C_API tern_code tern_tensor_new(tern_dtype dtype, const int64_t* shape, int32_t ndim, const char* device,
                                     const void* data, size_t bytes, tern_tensor** tensor, tern_status* status);
/* The caller's memory, without a copy, on the host and aligned to an element. It must live until release(context) is
 * called, once, on any thread, when the last tensor on it is gone (release or NULL). Not called after an error. */
TERN_C_API tern_code tern_tensor_wrap(tern_dtype dtype, const int64_t* shape, int32_t ndim, void* data, size_t bytes,
                                      void (*release)(void* context), void* context, tern_tensor** tensor,
                                      tern_status* status);
/* Uniform in [low, high), the same for the same seed. dtype: a floating type. */
TERN_C_API tern_code tern_tensor_random(tern_dtype dtype, const int64_t* shape, int32_t ndim, const char* device,
                                        double low, double high, uint64_t seed, tern_tensor** tensor,
                                        tern_status* status);
TERN_C_API tern_code tern_tensor_free(tern_tensor* tensor);

/* DLPack 1.x: another library's tensor, whose deleter Tern calls when it is no longer needed; after an error the caller
 * still owns it. copy: 0 never (what cannot be shared is an error), 1 where needed, 2 always. And a tensor for another
 * library, which calls the deleter; a tensor that requires a gradient must be detached first. The forms without version
 * are for libraries from before DLPack 1.0. */
struct DLManagedTensorVersioned;
struct DLManagedTensor;
TERN_C_API tern_code tern_tensor_from_dlpack(struct DLManagedTensorVersioned* managed, int32_t copy,
                                             tern_tensor** tensor, tern_status* status);
TERN_C_API tern_code tern_tensor_from_dlpack_unversioned(struct DLManagedTensor* managed, int32_t copy,
                                                         tern_tensor** tensor, tern_status* status);
TERN_C_API tern_code tern_tensor_to_dlpack(tern_tensor* tensor, struct DLManagedTensorVersioned** managed,
                                           tern_status* status);
TERN_C_API tern_code tern_tensor_to_dlpack_unversioned(tern_tensor* tensor, struct DLManagedTensor** managed,
                                                       tern_status* status);

TERN_C_API tern_code tern_tensor_dtype(tern_tensor* tensor, tern_dtype* dtype, tern_status* status);
TERN_C_API tern_code tern_tensor_ndim(tern_tensor* tensor, int32_t* ndim, tern_status* status);
/* capacity: the places of shape, at least ndim; ndim (or NULL) returns how many are written. */
TERN_C_API tern_code tern_tensor_shape(tern_tensor* tensor, int64_t* shape, int32_t capacity, int32_t* ndim,
                                       tern_status* status);
TERN_C_API tern_code tern_tensor_numel(tern_tensor* tensor, int64_t* count, tern_status* status);
TERN_C_API tern_code tern_tensor_device(tern_tensor* tensor, const char** device, tern_status* status);
/* The address of the elements: of a contiguous tensor, on the device where it is. */
TERN_C_API tern_code tern_tensor_data(tern_tensor* tensor, void** data, tern_status* status);
/* All elements in C's order, converted to dtype. bytes: the size of buffer, which must be theirs. */
TERN_C_API tern_code tern_tensor_read(tern_tensor* tensor, tern_dtype dtype, void* buffer, size_t bytes,
                                      tern_status* status);
/* New values in place, also of parameters; not recorded. */
TERN_C_API tern_code tern_tensor_write(tern_tensor* tensor, tern_dtype dtype, const void* data, size_t bytes,
                                       tern_status* status);
/* Of a tensor with one element. */
TERN_C_API tern_code tern_tensor_item(tern_tensor* tensor, double* value, tern_status* status);
/* On a device (or NULL: where it is), in a type (or TERN_DTYPE_DEFAULT: its own); shares memory when nothing changes.
 */
TERN_C_API tern_code tern_tensor_to(tern_tensor* tensor, const char* device, tern_dtype dtype, tern_tensor** result,
                                    tern_status* status);
TERN_C_API tern_code tern_tensor_clone(tern_tensor* tensor, tern_tensor** result, tern_status* status);
/* The same memory without history. */
TERN_C_API tern_code tern_tensor_detach(tern_tensor* tensor, tern_tensor** result, tern_status* status);

/* ---- Gradients ---- */

/* Of a floating tensor that no recorded op made. */
TERN_C_API tern_code tern_tensor_set_requires_grad(tern_tensor* tensor, int32_t requires_grad, tern_status* status);
TERN_C_API tern_code tern_tensor_requires_grad(tern_tensor* tensor, int32_t* requires_grad, tern_status* status);
/* What tern_backward has accumulated; NULL when there is nothing. It shares memory with later sums. */
TERN_C_API tern_code tern_tensor_grad(tern_tensor* tensor, tern_tensor** gradient, tern_status* status);
TERN_C_API tern_code tern_tensor_zero_grad(tern_tensor* tensor, tern_status* status);
/* Whether this thread's calls record what gradients need: 1 (the default) or 0. previous: or NULL. */
TERN_C_API tern_code tern_set_grad_enabled(int32_t enabled, int32_t* previous, tern_status* status);

enum {
  TERN_RETAIN_GRAPH = 1, /* the same outputs can be differentiated again */
  TERN_CREATE_GRAPH = 2, /* the gradients can be differentiated; implies TERN_RETAIN_GRAPH */
  TERN_ALLOW_UNUSED = 4  /* tern_grad: an input without influence gives NULL instead of an error */
};
/* Adds d(sum of outputs)/d(leaf) to every leaf that requires a gradient. gradients: d(loss)/d(output) of each output,
 * for a loss that the caller computes; or NULL, or NULL for an output of one element, which stand for 1. */
TERN_C_API tern_code tern_backward(tern_tensor* const* outputs, tern_tensor* const* gradients, int32_t count,
                                   uint32_t flags, tern_status* status);
/* The gradients by `inputs` alone, which are returned and not accumulated: forces are -grad(energy, positions), and
 * with TERN_CREATE_GRAPH a loss of them can be trained. */
TERN_C_API tern_code tern_grad(tern_tensor* const* outputs, tern_tensor* const* gradients, int32_t output_count,
                               tern_tensor* const* inputs, int32_t input_count, uint32_t flags, tern_tensor** results,
                               tern_status* status);

/* ---- Ops: what a loss or a small model of one's own needs. Recorded, of any order of derivative. Shapes broadcast. */

enum {
  TERN_NEG = 1,
  TERN_ABS = 2,
  TERN_EXP = 3,
  TERN_LOG = 4,
  TERN_SQRT = 5,
  TERN_SQUARE = 6,
  TERN_RECIPROCAL = 7,
  TERN_SIN = 8,
  TERN_COS = 9,
  TERN_TANH = 10,
  TERN_SIGMOID = 11,
  TERN_RELU = 12,
  TERN_GELU = 13,
  TERN_SILU = 14,
  TERN_SOFTPLUS = 15
};
TERN_C_API tern_code tern_unary(int32_t op, tern_tensor* x, tern_tensor** result, tern_status* status);
enum {
  TERN_ADD = 1,
  TERN_SUB = 2,
  TERN_MUL = 3,
  TERN_DIV = 4,
  TERN_POW = 5,
  TERN_MAXIMUM = 6,
  TERN_MINIMUM = 7,
  TERN_EQUAL = 8, /* of type TERN_BOOL, like TERN_LESS */
  TERN_LESS = 9
};
TERN_C_API tern_code tern_binary(int32_t op, tern_tensor* a, tern_tensor* b, tern_tensor** result, tern_status* status);
/* factor * x + offset. */
TERN_C_API tern_code tern_scale(tern_tensor* x, double factor, double offset, tern_tensor** result,
                                tern_status* status);
enum { TERN_SUM = 1, TERN_MEAN = 2, TERN_MAX = 3, TERN_MIN = 4 };
/* Over count dimensions (negative ones from the end); count 0: all. */
TERN_C_API tern_code tern_reduce(int32_t op, tern_tensor* x, const int32_t* dims, int32_t count, int32_t keepdim,
                                 tern_tensor** result, tern_status* status);
/* Index of the greatest element along a dimension, int64. */
TERN_C_API tern_code tern_argmax(tern_tensor* x, int32_t dim, tern_tensor** result, tern_status* status);
TERN_C_API tern_code tern_softmax(tern_tensor* x, int32_t dim, tern_tensor** result, tern_status* status);
/* [..., m, k] and [..., k, n]. */
TERN_C_API tern_code tern_matmul(tern_tensor* a, tern_tensor* b, tern_tensor** result, tern_status* status);
/* x weight^T + bias: x [..., in], weight [out, in], bias [out] or NULL. */
TERN_C_API tern_code tern_linear(tern_tensor* x, tern_tensor* weight, tern_tensor* bias, tern_tensor** result,
                                 tern_status* status);
/* One size may be -1. */
TERN_C_API tern_code tern_reshape(tern_tensor* x, const int64_t* shape, int32_t ndim, tern_tensor** result,
                                  tern_status* status);
TERN_C_API tern_code tern_permute(tern_tensor* x, const int32_t* order, int32_t ndim, tern_tensor** result,
                                  tern_status* status);
/* Elements begin, begin + step, ... < end of a dimension, as in Python. */
TERN_C_API tern_code tern_slice(tern_tensor* x, int32_t dim, int64_t begin, int64_t end, int64_t step,
                                tern_tensor** result, tern_status* status);
/* The elements of a dimension at the places of `index`, int32 or int64 [n]. */
TERN_C_API tern_code tern_index_select(tern_tensor* x, int32_t dim, tern_tensor* index, tern_tensor** result,
                                       tern_status* status);
TERN_C_API tern_code tern_concatenate(tern_tensor* const* tensors, int32_t count, int32_t dim, tern_tensor** result,
                                      tern_status* status);

/* ---- Losses ---- */

enum {
  TERN_CROSS_ENTROPY = 1, /* logits [rows, classes, ...]; classes int64 [rows, ...], or probabilities of one shape */
  TERN_MSE = 2,
  TERN_L1 = 3,
  TERN_HUBER = 4,
  TERN_BCE_WITH_LOGITS = 5
};
enum { TERN_REDUCE_MEAN = 0, TERN_REDUCE_SUM = 1, TERN_REDUCE_NONE = 2 };
typedef struct tern_loss_options {
  uint32_t size; /* sizeof(tern_loss_options) */
  int32_t reduction;
  double label_smoothing;   /* TERN_CROSS_ENTROPY */
  int64_t ignore_index;     /* TERN_CROSS_ENTROPY: a class that counts for nothing, where has_ignore_index; else -100 */
  int32_t has_ignore_index; /* 0 or 1 */
  int32_t reserved;         /* 0 */
  double delta;             /* TERN_HUBER; 0: 1 */
} tern_loss_options;
/* options: or NULL. */
TERN_C_API tern_code tern_loss(int32_t loss, tern_tensor* prediction, tern_tensor* target,
                               const tern_loss_options* options, tern_tensor** result, tern_status* status);

/* ---- Named tensors: the contents of a file, parameters, the state of an optimizer ---- */

TERN_C_API tern_code tern_tensors_new(tern_tensors** list, tern_status* status);
/* Names are unique. The list shares the tensor's memory. */
TERN_C_API tern_code tern_tensors_add(tern_tensors* list, const char* name, tern_tensor* tensor, tern_status* status);
TERN_C_API tern_code tern_tensors_count(tern_tensors* list, int64_t* count, tern_status* status);
TERN_C_API tern_code tern_tensors_name(tern_tensors* list, int64_t index, const char** name, tern_status* status);
/* A new handle on the tensor, to be freed. */
TERN_C_API tern_code tern_tensors_get(tern_tensors* list, int64_t index, tern_tensor** tensor, tern_status* status);
/* TERN_ERROR_FAILED if there is none of the name. */
TERN_C_API tern_code tern_tensors_find(tern_tensors* list, const char* name, tern_tensor** tensor, tern_status* status);
/* safetensors, and PyTorch's and NumPy's files, known by their contents. Weights are mapped, not read. */
TERN_C_API tern_code tern_tensors_load(const char* path, tern_tensors** list, tern_status* status);
/* safetensors; the file is complete or the older one stays. */
TERN_C_API tern_code tern_tensors_save(tern_tensors* list, const char* path, tern_status* status);
TERN_C_API tern_code tern_tensors_free(tern_tensors* list);

/* ---- Models ---- */

typedef struct tern_model_options {
  uint32_t size;                 /* sizeof(tern_model_options) */
  tern_dtype dtype;              /* of the weights; default float32. Of ONNX files: that of the file, no other */
  const char* device;            /* or NULL: the CPU */
  uint64_t seed;                 /* of initial values and dropout */
  const char* const* labels;     /* label_count names of classes; or NULL: those of the file, or "0", "1", ... */
  int64_t label_count;           /* of a new model. When a folder is loaded: as many as it has, unless new_head */
  double dropout;                /* replaces all probabilities, where has_dropout */
  int32_t has_dropout;           /* 0 or 1 */
  int32_t new_head;              /* 1: folders without a head, or with another one, get a new last layer */
  int64_t image_size;            /* pixels a side of images; 0: the model's own */
  int64_t max_length;            /* of texts; 0: the model's own */
  int32_t train_inference_nodes; /* ONNX, 1: batch norm and dropout exported for inference act in training */
  int32_t no_fusion;             /* ONNX, 1: the file's nodes one by one */
} tern_model_options;

/* A folder of a training run of Tern, a Hugging Face folder or file of weights of a family of Tern's, or an ONNX file
 * (its name ends in .onnx). options: or NULL. A model begins in evaluation mode. */
TERN_C_API tern_code tern_model_load(const char* path, const tern_model_options* options, tern_model** model,
                                     tern_status* status);
/* A new one of a family of `tern train` ("vit", "cnn", "distilbert", "lstm") in one of its sizes (preset, or NULL: its
 * first). options must have label_count. */
TERN_C_API tern_code tern_model_new(const char* family, const char* preset, const tern_model_options* options,
                                    tern_model** model, tern_status* status);
/* Linear layers "layers.0", "layers.1", ... of sizes[0] inputs to sizes[count - 1] outputs, with an op of tern_unary
 * between them (TERN_TANH, TERN_GELU, ...). Of options: dtype, device and seed. Input "x" [..., sizes[0]], output "y".
 */
TERN_C_API tern_code tern_model_mlp(const int64_t* sizes, int32_t count, int32_t activation,
                                    const tern_model_options* options, tern_model** model, tern_status* status);
TERN_C_API tern_code tern_model_free(tern_model* model);

/* Inputs and outputs in their order. Of an ONNX file they are the graph's. Of images: "pixel_values", floating [batch,
 * channels, height, width], normalised as in training; of texts: "input_ids" int64 [batch, length], "attention_mask"
 * int64, 0 where padded, which may be left out, and of BERT "token_type_ids" int64, 0 where they are left out; output
 * "logits" [batch, labels]. */
TERN_C_API tern_code tern_model_input_count(tern_model* model, int32_t* count, tern_status* status);
TERN_C_API tern_code tern_model_output_count(tern_model* model, int32_t* count, tern_status* status);
TERN_C_API tern_code tern_model_input_name(tern_model* model, int32_t index, const char** name, tern_status* status);
TERN_C_API tern_code tern_model_output_name(tern_model* model, int32_t index, const char** name, tern_status* status);

/* The first output_count outputs for inputs in their order. A NULL among the inputs, and inputs that are missing at the
 * end, are optional ones left out. Recorded for gradients unless tern_set_grad_enabled(0, ...). */
TERN_C_API tern_code tern_model_run(tern_model* model, tern_tensor* const* inputs, int32_t input_count,
                                    tern_tensor** outputs, int32_t output_count, tern_status* status);
TERN_C_API tern_code tern_model_run_named(tern_model* model, const char* const* input_names, tern_tensor* const* inputs,
                                          int32_t input_count, const char* const* output_names, tern_tensor** outputs,
                                          int32_t output_count, tern_status* status);

/* Training mode (1) or evaluation (0): dropout, batch norm. */
TERN_C_API tern_code tern_model_set_training(tern_model* model, int32_t training, tern_status* status);
TERN_C_API tern_code tern_model_is_training(tern_model* model, int32_t* training, tern_status* status);
/* Mixed precision of tern_model_run and tern_model_train_step: TERN_BFLOAT16 computes matrix products in it,
 * TERN_FLOAT32 (the default) switches it off. */
TERN_C_API tern_code tern_model_set_autocast(tern_model* model, tern_dtype dtype, tern_status* status);
/* Moves the weights to a device (or NULL) and a type (or TERN_DTYPE_DEFAULT). Before an optimizer is made. */
TERN_C_API tern_code tern_model_to(tern_model* model, const char* device, tern_dtype dtype, tern_status* status);

/* Parameters whose names match a shell pattern (or NULL: all), and with them the buffers: live tensors. */
TERN_C_API tern_code tern_model_parameters(tern_model* model, const char* pattern, tern_tensors** list,
                                           tern_status* status);
TERN_C_API tern_code tern_model_state(tern_model* model, tern_tensors** list, tern_status* status);
/* How many parameters there are, and how many elements they have (each or NULL). */
TERN_C_API tern_code tern_model_parameter_count(tern_model* model, int64_t* tensors, int64_t* elements,
                                                tern_status* status);
/* frozen 1: those of the pattern need no gradient and stay as they are; 0: they are trained again. count (or NULL): how
 * many there are; none is an error. */
TERN_C_API tern_code tern_model_freeze(tern_model* model, const char* pattern, int32_t frozen, int64_t* count,
                                       tern_status* status);
/* ONNX files: a new last layer of so many classes. Make optimizers afterwards. */
TERN_C_API tern_code tern_model_replace_head(tern_model* model, int64_t classes, tern_status* status);
TERN_C_API tern_code tern_model_zero_grad(tern_model* model, tern_status* status);
/* Copies values into parameters and buffers by name. Missing, unexpected and misshaped ones are an error, and then
 * nothing is written. */
TERN_C_API tern_code tern_model_load_state(tern_model* model, tern_tensors* list, tern_status* status);

/* A family's model: a folder that tern_model_load, `tern predict` and transformers read. An ONNX file's: the file with
 * the weights of now, written under this name. */
TERN_C_API tern_code tern_model_save(tern_model* model, const char* path, tern_status* status);
/* All weights, safetensors: for tern_tensors_load and tern_model_load_state. */
TERN_C_API tern_code tern_model_save_weights(tern_model* model, const char* path, tern_status* status);
/* The model in evaluation mode as an ONNX file of an opset from 17 to 23 (0: 20). inputs: examples of an ONNX file's
 * model, whose dimensions without a fixed size stay so; otherwise NULL and 0. */
TERN_C_API tern_code tern_model_export_onnx(tern_model* model, const char* path, int64_t opset,
                                            tern_tensor* const* inputs, int32_t input_count, tern_status* status);

/* ---- Training ---- */

typedef struct tern_optimizer_options {
  uint32_t size; /* sizeof(tern_optimizer_options) */
  int32_t nesterov;
  const char* name;     /* "adamw", "adam", "sgd", "nadam", "radam", "rmsprop", "adagrad", "adadelta", "lion", "lamb",
                           "adafactor", "muon"; or NULL: adamw */
  double lr;            /* > 0 */
  double weight_decay;  /* of matrices and larger; none of biases and norms, which have one dimension */
  double momentum;      /* sgd, rmsprop, muon, where has_momentum; else 0.9, 0 and 0.95 */
  int32_t has_momentum; /* 0 or 1 */
  int32_t kahan;        /* 1: bfloat16 weights with compensations in place of fp32 copies */
  double beta1, beta2;  /* adam, adamw; 0: 0.9 and 0.999 */
  double eps;           /* adam, adamw; 0: 1e-8 */
} tern_optimizer_options;

/* Of the parameters that require a gradient. The optimizer counts as the model's user while it is called. */
TERN_C_API tern_code tern_optimizer_new(tern_model* model, const tern_optimizer_options* options,
                                        tern_optimizer** optimizer, tern_status* status);
/* Of tensors that require a gradient: a model that the caller makes of ops. */
TERN_C_API tern_code tern_optimizer_new_for(tern_tensors* parameters, const tern_optimizer_options* options,
                                            tern_optimizer** optimizer, tern_status* status);
TERN_C_API tern_code tern_optimizer_free(tern_optimizer* optimizer);

typedef struct tern_step_options {
  uint32_t size;           /* sizeof(tern_step_options) */
  int32_t skip_non_finite; /* 1: a gradient with a NaN or infinity leaves everything as it is */
  double max_norm;         /* > 0: gradients are scaled down to this norm of all */
} tern_step_options;
typedef struct tern_step_result {
  uint32_t size;    /* sizeof(tern_step_result), set by the caller */
  int32_t skipped;  /* 1: because of skip_non_finite */
  double grad_norm; /* before clipping; 0 without max_norm and skip_non_finite */
} tern_step_result;
/* One update by the gradients. options, result: or NULL; a result waits for the device. */
TERN_C_API tern_code tern_optimizer_step(tern_optimizer* optimizer, const tern_step_options* options,
                                         tern_step_result* result, tern_status* status);
TERN_C_API tern_code tern_optimizer_zero_grad(tern_optimizer* optimizer, tern_status* status);
TERN_C_API tern_code tern_optimizer_set_lr(tern_optimizer* optimizer, double lr, tern_status* status);
TERN_C_API tern_code tern_optimizer_lr(tern_optimizer* optimizer, double* lr, tern_status* status);
/* Its moments and counts, "exp_avg.NAME", "step.NAME", to look at: tern_checkpoint_load restores them. */
TERN_C_API tern_code tern_optimizer_state(tern_optimizer* optimizer, tern_tensors** list, tern_status* status);

/* One step of a model with one of the losses on its first output: run, loss, backward, update, gradients dropped;
 * gradients that there were before are added to. The mode is the caller's: tern_model_set_training(model, 1, ...).
 * value (or NULL): the loss before the update, which waits for the device. loss_options, step_options: or NULL. After
 * an error gradients are dropped, and weights are as before. */
TERN_C_API tern_code tern_model_train_step(tern_model* model, tern_optimizer* optimizer, tern_tensor* const* inputs,
                                           int32_t input_count, int32_t loss, tern_tensor* target,
                                           const tern_loss_options* loss_options, const tern_step_options* step_options,
                                           double* value, tern_status* status);

/* The whole state of a loop in one file: weights of a model or tensors, an optimizer, the model's generator, and the
 * caller's own numbers (epoch, batch, seed). Each but path: or NULL. A file that was saved with the same arguments is
 * loaded whole or, after an error, not at all; the loop then goes on with the same bits. */
TERN_C_API tern_code tern_checkpoint_save(const char* path, tern_model* model, tern_tensors* tensors,
                                          tern_optimizer* optimizer, const int64_t* numbers, int32_t count,
                                          tern_status* status);
TERN_C_API tern_code tern_checkpoint_load(const char* path, tern_model* model, tern_tensors* tensors,
                                          tern_optimizer* optimizer, int64_t* numbers, int32_t count,
                                          tern_status* status);

/* ---- Data, devices ---- */

/* The embedded digits, 1797 images of 8 x 8: part "train", "test" or "all"; pixels float32 [n, 64] in [0, 1], classes
 * int64 [n]. */
TERN_C_API tern_code tern_digits(const char* part, tern_tensor** pixels, tern_tensor** classes, tern_status* status);
/* 1 when tensors can be made there. */
TERN_C_API tern_code tern_device_available(const char* device, int32_t* available, tern_status* status);

#ifdef __cplusplus
}
#endif

#endif
