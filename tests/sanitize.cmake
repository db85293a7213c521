# The tests that .ci/run also runs with sanitizers: what touches memory by hand, parses files, or uses threads.
set(TERN_SANITIZE_TESTS
    kernels_copy_test
    kernels_embedding_test
    kernels_norm_test
    kernels_reduce_test
    core_allocator_random_test
    core_pickle_test
    core_tensor_test
    core_torch_file_test
    data_archive_test
    data_delimited_test
    data_image_test
    data_loader_test
    data_text_dataset_test
    data_tokenizer_test
    nn_layers_test)
