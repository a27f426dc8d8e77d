// What marks that a user has chosen how processes talk.
#include "supervisor/transport.h"

#include <cstdlib>
#include <cstring>

#include "tests/unit/unit_test.h"

using namespace redrive;

namespace {

const TransportVariable& named(const char* name) {
  for (const TransportVariable& variable : transport_variables()) {
    if (!std::strcmp(variable.name, name)) return variable;
  }
  FAIL("no variable " << name);
  return transport_variables()[0];
}

// The environment without any of the variables, as long as it lives.
struct NothingChosen {
  NothingChosen() { clear(); }
  ~NothingChosen() { clear(); }
  static void clear() {
    for (const TransportVariable& variable : transport_variables()) {
      unsetenv(variable.name);
      if (variable.chosen) unsetenv(variable.chosen);
    }
  }
};

}  // namespace

TEST_CASE("transport: all that is not chosen is set, and only once") {
  const NothingChosen nothing;
  CHECK_EQ(ask_for_sockets({"mpirun", "-n", "4", "./app"}).size(), transport_variables().size());
  for (const TransportVariable& variable : transport_variables()) {
    CAPTURE(variable.name);
    REQUIRE(std::getenv(variable.name) != nullptr);
    CHECK_EQ(std::string(std::getenv(variable.name)), variable.value);
  }
  CHECK(ask_for_sockets({"mpirun", "-n", "4", "./app"}).empty());
}

TEST_CASE("transport: the environment chooses, by the same variable or another") {
  const NothingChosen nothing;
  setenv("OMPI_MCA_btl", "vader,self", 1);
  setenv("OMPI_MCA_mtl", "psm2", 1);
  CHECK(is_chosen(named("OMPI_MCA_btl"), {"mpirun"}));
  CHECK(is_chosen(named("OMPI_MCA_pml"), {"mpirun"}));
  CHECK_FALSE(is_chosen(named("PMIX_MCA_gds"), {"mpirun"}));
  ask_for_sockets({"mpirun"});
  CHECK_EQ(std::string(std::getenv("OMPI_MCA_btl")), "vader,self");
  CHECK(std::getenv("OMPI_MCA_pml") == nullptr);
}

TEST_CASE("transport: options of mpirun and mpiexec choose") {
  const NothingChosen nothing;
  const auto& btl = named("OMPI_MCA_btl");
  CHECK(is_chosen(btl, {"mpirun", "--mca", "btl", "vader,self", "./app"}));
  CHECK(is_chosen(btl, {"mpirun", "-gmca", "btl", "self", "./app"}));
  CHECK(is_chosen(btl, {"mpirun", "-x", "OMPI_MCA_btl=vader,self", "./app"}));
  CHECK(is_chosen(named("PMIX_MCA_gds"), {"mpirun", "--pmixmca", "gds", "ds21", "./app"}));
  CHECK(is_chosen(named("OMPI_MCA_pml"), {"mpirun", "--mca", "mtl", "ofi", "./app"}));
  CHECK(is_chosen(btl, {"env", "OMPI_MCA_btl=vader,self", "mpirun", "./app"}));
  CHECK_FALSE(is_chosen(btl, {"mpirun", "--mca", "btl_tcp_if_include", "lo", "./app"}));
  CHECK_FALSE(is_chosen(btl, {"./app", "btl"}));
  CHECK_FALSE(is_chosen(btl, {"mpirun", "-x", "OMPI_MCA_btl_tcp_if_include=lo", "./app"}));
}
