#include "supervisor/cli/commands.h"

#include "supervisor/cli/catalog.h"
#include "supervisor/cli/check.h"
#include "supervisor/cli/checkpoint.h"
#include "supervisor/cli/dump.h"
#include "supervisor/cli/evaluate.h"
#include "supervisor/cli/follow.h"
#include "supervisor/cli/list.h"
#include "supervisor/cli/live.h"
#include "supervisor/cli/plan.h"
#include "supervisor/cli/prepare.h"
#include "supervisor/cli/ps.h"
#include "supervisor/cli/record.h"
#include "supervisor/cli/remove.h"
#include "supervisor/cli/replay.h"
#include "supervisor/cli/service.h"
#include "supervisor/cli/set.h"
#include "supervisor/cli/snapshot.h"
#include "supervisor/cli/start.h"
#include "supervisor/cli/stats.h"
#include "supervisor/cli/status.h"
#include "supervisor/cli/stop.h"

namespace redrive {

std::vector<std::unique_ptr<Command>> make_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto make :
       {make_record_command, make_list_command,    make_replay_command,   make_plan_command,    make_dump_command,
        make_stats_command,  make_catalog_command, make_evaluate_command, make_prepare_command, make_check_command,
        make_start_command,  make_ps_command,      make_status_command,   make_follow_command,  make_checkpoint_command,
        make_live_command,   make_set_command,     make_snapshot_command, make_stop_command,    make_service_command,
        make_remove_command}) {
    commands.push_back(make());
  }
  return commands;
}

}  // namespace redrive
