// How it is recognized that the user has chosen how processes communicate.
#include "supervisor/record/settings/transport.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/unit/unit_test.h"

namespace redrive::transport_test {

namespace {

const TransportVariable& named(const char* name) {
  for (const TransportVariable& variable : transport_variables()) {
    if (!std::strcmp(variable.name, name)) return variable;
  }
  FAIL("no variable " << name);
  return transport_variables()[0];
}

// The environment without any of the variables, as long as this exists.
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
  const auto asked = ask_for_sockets({"mpirun", "-n", "4", "./app"});
  CHECK(asked.size() <= transport_variables().size());
  for (const TransportVariable& variable : transport_variables()) {
    CAPTURE(variable.name);
    // Others depend on what is installed.
    if (variable.unless && std::find(asked.begin(), asked.end(), &variable) == asked.end()) continue;
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

TEST_CASE("transport: a library's version is the name of the file that programs find") {
  char name[] = "/tmp/redrive-libraries-XXXXXX";
  REQUIRE(mkdtemp(name));
  const std::string directory = name, former = directory + "/former";
  std::filesystem::create_directory(former);
  const std::string path = "/nowhere:" + former + ":" + directory + ":";
  CHECK_EQ(library_file("libx.so.1", path), "");
  std::ofstream(directory + "/libx.so.1.3.1");
  CHECK_EQ(library_file("libx.so.1", path), "");  // no program would find it
  std::filesystem::create_symlink("libx.so.1.3.1", directory + "/libx.so.1");
  CHECK_EQ(library_file("libx.so.1", path), "libx.so.1.3.1");
  std::ofstream(former + "/libx.so.1");
  CHECK_EQ(library_file("libx.so.1", path), "libx.so.1");
  std::filesystem::remove_all(directory);
  CHECK_EQ(library_file("libx.so.1", "/nowhere"), "");
  CHECK_EQ(library_file("libx.so.1", ""), "");
}

TEST_CASE("transport: options of mpirun and mpiexec choose") {
  const NothingChosen nothing;
  const auto& btl = named("OMPI_MCA_btl");
  CHECK(is_chosen(btl, {"mpirun", "--mca", "btl", "vader,self", "./app"}));
  CHECK(is_chosen(btl, {"mpirun", "-gmca", "btl", "self", "./app"}));
  CHECK(is_chosen(btl, {"mpirun", "-x", "OMPI_MCA_btl=vader,self", "./app"}));
  CHECK(is_chosen(named("PMIX_MCA_gds"), {"mpirun", "--pmixmca", "gds", "ds21", "./app"}));
  CHECK(is_chosen(named("OMPI_MCA_pml"), {"mpirun", "--mca", "mtl", "ofi", "./app"}));
  CHECK(is_chosen(named("UCX_TLS"), {"mpiexec", "-genv", "UCX_TLS", "all", "./app"}));
  CHECK(is_chosen(named("UCX_TLS"), {"mpiexec", "-env", "UCX_TLS=sm", "./app"}));
  CHECK(is_chosen(btl, {"env", "OMPI_MCA_btl=vader,self", "mpirun", "./app"}));
  CHECK_FALSE(is_chosen(btl, {"mpirun", "--mca", "btl_tcp_if_include", "lo", "./app"}));
  CHECK_FALSE(is_chosen(btl, {"./app", "btl"}));
  CHECK_FALSE(is_chosen(btl, {"mpirun", "-x", "OMPI_MCA_btl_tcp_if_include=lo", "./app"}));
}

}  // namespace redrive::transport_test
