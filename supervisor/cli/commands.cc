#include "supervisor/cli/commands.h"

#include "supervisor/cli/catalog.h"
#include "supervisor/cli/check.h"
#include "supervisor/cli/dump.h"
#include "supervisor/cli/evaluate.h"
#include "supervisor/cli/list.h"
#include "supervisor/cli/plan.h"
#include "supervisor/cli/prepare.h"
#include "supervisor/cli/record.h"
#include "supervisor/cli/remove.h"
#include "supervisor/cli/replay.h"
#include "supervisor/cli/stats.h"

namespace redrive {

std::vector<std::unique_ptr<Command>> make_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto make : {make_record_command, make_list_command, make_replay_command, make_plan_command,
                          make_dump_command, make_stats_command, make_catalog_command, make_evaluate_command,
                          make_prepare_command, make_check_command, make_remove_command}) {
    commands.push_back(make());
  }
  return commands;
}

}  // namespace redrive
