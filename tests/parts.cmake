# TERN_TESTS_OF_<option>: the tests that cannot be built when the option leaves its part out. A name that no test has is
# an error. Most tests of the program tokenize with the embedded vocabulary or train on an embedded data set.

set(TERN_PARTS TERN_CURL TERN_ARCHIVES TERN_IMAGES TERN_ONNX TERN_EMBEDDED_DATA)
set(TERN_TESTS_OF_TERN_CURL
    data_download_test
    data_fetched_folder_test
    data_hub_test
    data_hub_transfer_test
    program_fetch_test
    program_hub_python_slow_test)
set(TERN_TESTS_OF_TERN_ARCHIVES data_archive_test data_fetched_folder_test)
set(TERN_TESTS_OF_TERN_IMAGES
    data_image_set_test
    data_image_test
    program_vit_test)
set(TERN_TESTS_OF_TERN_ONNX models_onnx_test models_onnx_node_test models_onnx_export_test)
set(TERN_TESTS_OF_TERN_EMBEDDED_DATA
    data_image_set_test
    data_loader_test
    data_text_set_test
    data_token_set_test
    data_tokenizer_files_test
    data_tokenizer_test
    models_c_api_models_test
    models_families_test
    models_text_pipeline_test
    program_data_test
    program_failure_test
    program_history_test
    program_hostile_test
    program_launch_test
    program_launch_train_test
    program_model_folder_test
    program_power_cut_test
    program_predict_test
    program_resume_slow_test
    program_resume_test
    program_train_test
    program_usage_test
    program_vit_test
    example_accelerator
    example_char_gpt
    example_custom_model
    example_data_parallel
    example_digits
    example_digits_c
    example_distillation
    example_loop_by_hand
    example_lora_fine_tuning
    example_multi_task
    example_train_text
    example_vae
    repository_outside_installed
    repository_outside_subdirectory)

# Sets `variable` to the reason why this build cannot have the test, or to nothing.
function(tern_left_out test variable)
  set(${variable} "" PARENT_SCOPE)
  foreach(part ${TERN_PARTS})
    if(NOT ${part} AND test IN_LIST TERN_TESTS_OF_${part})
      set(${variable} "options: this build is configured with ${part}=OFF" PARENT_SCOPE)
    endif()
  endforeach()
  if(NOT TERN_EMULATOR AND test MATCHES "^emulated_|^kernels_(cub|loss_scale)_test$|^example_emulated_kernel$")
    set(${variable} "options: this build is configured with TERN_EMULATOR=OFF" PARENT_SCOPE)
  endif()
endfunction()
