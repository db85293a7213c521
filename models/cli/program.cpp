#include "tern/models/cli/program.h"

#include <iostream>

#include "tern/models/cli/launch/process_end.h"
#include "tern/models/cli/launch/rank_process.h"
#include "tern/models/cli/launch/rank_program.h"

namespace tern::cli {

std::vector<Command> all_commands(const std::vector<std::string>& arguments, const std::vector<std::string>& launched) {
  return {train_command(arguments), resume_command(arguments), eval_command(),
          predict_command(),        tokenize_command(),        fetch_command(),
          info_command(),           export_command(),          launch_command(launched)};
}

int run_program(const std::vector<std::string>& arguments) {
  try {
    if (arguments.size() > 1 && arguments[0] == kRankProgram)
      return run_rank_program({arguments.begin() + 1, arguments.end()});
    begin_process();
    std::vector<std::string> words = arguments, launched;
    if (!words.empty() && words[0] == "launch") launched = cut_launched(words);
    const int status = run_command_line(all_commands(arguments, launched), words);
    std::cout.flush();
    if (status == 0) check_output();
    end_rank(status, "", false);
    return status;
  } catch (...) {
    return report_failure();
  }
}

}  // namespace tern::cli
