# cmake -DFILE=F -DMEMBER=a;0;b -P json_member.cmake: prints that member; fails unless F is one JSON value that has it.
file(READ "${FILE}" text)
string(JSON value ERROR_VARIABLE error GET "${text}" ${MEMBER})
if(error)
  message(FATAL_ERROR "${FILE}: ${error}")
endif()
message("${value}")
