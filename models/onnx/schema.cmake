# C++ of onnx.proto, in the build folder: included as <onnx.pb.h>.

set(schema ${PROJECT_BINARY_DIR}/models/onnx)
file(MAKE_DIRECTORY ${schema})
add_custom_command(
  OUTPUT ${schema}/onnx.pb.cc ${schema}/onnx.pb.h
  COMMAND protobuf::protoc --cpp_out=${schema} --proto_path=${PROJECT_SOURCE_DIR}/models/onnx onnx.proto
  DEPENDS ${PROJECT_SOURCE_DIR}/models/onnx/onnx.proto
  COMMENT "Generating C++ of models/onnx/onnx.proto" VERBATIM)
add_library(tern_onnx_schema OBJECT ${schema}/onnx.pb.cc)
target_link_libraries(tern_onnx_schema PRIVATE tern_options protobuf::libprotobuf-lite)
target_compile_options(tern_onnx_schema PRIVATE -w -O1)
target_include_directories(${TERN_OBJECTS_models} SYSTEM PRIVATE ${schema})
target_sources(${TERN_OBJECTS_models} PRIVATE $<TARGET_OBJECTS:tern_onnx_schema>)
set_source_files_properties(${PROJECT_SOURCE_DIR}/models/onnx/model_file.cpp
                            ${PROJECT_SOURCE_DIR}/models/onnx/export/model_writer.cpp PROPERTIES
                            OBJECT_DEPENDS ${schema}/onnx.pb.h)
# libtern.so is made of the objects of the floors, which these are not.
set_property(GLOBAL APPEND PROPERTY TERN_FLOOR_OBJECTS tern_onnx_schema)
