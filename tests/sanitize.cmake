# The tests that .ci/run also runs with sanitizers: what touches memory by hand, parses files, or uses threads; and every
# CUDA kernel in the emulator, where ThreadSanitizer sees races between CUDA threads. The emulator's own tests are named
# in emulator/CMakeLists.txt. `./tern test --sanitize --full` runs all tests with both.
set(TERN_SANITIZE_TESTS
    kernels_attention_test
    kernels_batch_norm_test
    kernels_convolution_test
    kernels_copy_test
    kernels_cross_entropy_test
    kernels_ctc_test
    kernels_cub_test
    kernels_dropout_test
    kernels_embedding_test
    kernels_fixed_threads_test
    kernels_gemm_test
    kernels_image_test
    kernels_group_norm_test
    kernels_layerwise_optimizer_test
    kernels_linear_activation_test
    kernels_loss_scale_test
    kernels_norm_test
    kernels_optimizer_test
    kernels_parallel_errors_test
    kernels_parallel_test
    kernels_pointwise_test
    kernels_pool_test
    kernels_recurrent_test
    kernels_reduce_test
    kernels_resample_test
    kernels_rotary_test
    kernels_scan_test
    kernels_softmax_test
    kernels_sort_test
    core_allocator_random_test
    core_allocator_test
    core_dlpack_test
    core_files_test
    core_npy_test
    core_npz_test
    core_op_inputs_test
    core_packed_weights_test
    core_pickle_test
    core_safetensors_test
    core_tensor_test
    core_threads_test
    core_torch_file_test
    core_views_test
    data_archive_test
    data_delimited_test
    data_download_test
    data_gzip_test
    data_hub_test
    data_hub_transfer_test
    data_image_test
    data_loader_test
    data_target_set_test
    data_text_set_test
    data_token_loader_test
    data_token_set_test
    data_tokenizer_files_test
    data_tokenizer_json_test
    data_tokenizer_test
    dist_rendezvous_test
    dist_row_exchange_test
    dist_session_test
    dist_store_limits_test
    dist_store_test
    emulated_attention_ragged_test
    emulated_optimizer_kernel_test
    models_checkpoint_test
    models_config_test
    models_trainer_test
    nn_layers_test
    optim_ema_test
    optim_grad_scaler_test
    optim_optimizer_state_test
    optim_optimizer_test)
if(TERN_SANITIZE MATCHES "thread")  # these have one thread, or little for a second
  list(REMOVE_ITEM TERN_SANITIZE_TESTS core_allocator_test core_files_test core_npy_test core_npz_test
       core_op_inputs_test core_pickle_test core_safetensors_test core_torch_file_test data_archive_test
       data_delimited_test data_download_test data_gzip_test data_hub_test data_hub_transfer_test dist_rendezvous_test
       dist_row_exchange_test models_checkpoint_test models_config_test models_trainer_test optim_ema_test
       optim_grad_scaler_test optim_optimizer_state_test optim_optimizer_test)
endif()
