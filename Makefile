# redrive. `make` builds build/redrive; `make help` lists the targets.
.DEFAULT_GOAL := all
CXX      ?= g++
BUILD    ?= build
# The dependency files (-MMD) hold the names of the objects, so these must not depend on how the directory is named.
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))
# Backtraces have functions and lines; to look at variables, CXXFLAGS="-Og -g".
CXXFLAGS ?= -O2 -g1
LDFLAGS  ?=
PREFIX   ?= /usr/local
WARN     := -Wall -Wextra -Werror
ALL_CXXFLAGS = -std=c++20 $(WARN) -I. -I$(BUILD) -pthread -D_GNU_SOURCE -MMD -MP $(CXXFLAGS)
# The compiler's unwinder comes before libunwind, which would otherwise handle exceptions too, with system calls of its own.
LIBS     := -lsqlite3 -l:libprotobuf-lite.a -lzstd -lxxhash -lfmt -lcapstone -lseccomp -lgcc_s -lunwind-x86_64 -lunwind -pthread

RECORD_ROOMS := front kernel settings code messages tracees memory checkpoints placement disguise stops attach
LIB_DIRS := base logstore logstore/policy interceptors checkpoint \
  $(addprefix supervisor/,plan evaluation tier record $(addprefix record/,$(RECORD_ROOMS)) replay live session daemon service cli)
MAIN_SRCS := supervisor/cli/main.cc supervisor/daemon/main.cc
# Linked to some programs only.
SOME_SRCS := base/sanitizer_reports.cc base/fmt_library.cc
LIB_SRCS := $(filter-out $(MAIN_SRCS) $(SOME_SRCS),$(foreach d,$(LIB_DIRS),$(wildcard $(d)/*.cc)))
# What protoc makes: build/X.pb.h, which is included as X.pb.h, and build/X.pb.cc.
PROTOS   := $(foreach d,$(LIB_DIRS),$(wildcard $(d)/*.proto))
PB_HEADERS := $(PROTOS:%.proto=$(BUILD)/%.pb.h)
# Most of the time that a file takes to compile goes into its headers. Therefore up to TOGETHER files of a directory are one translation unit,
# whose object is named after the first of them. A file beside it, .unit, names the others: if they are not those of before, it is compiled again. These
# have options of their own:
TOGETHER ?= 8
ALONE    := interceptors/trapped_instructions.cc tests/unit/main.cc
define one_unit
HEADS += $(firstword $(1))
$(BUILD)/$(patsubst %.cc,%.o,$(firstword $(1))): $(wordlist 2,$(TOGETHER),$(1))
$(BUILD)/$(patsubst %.cc,%.o,$(firstword $(1))): WITH := $(wordlist 2,$(TOGETHER),$(1))
ifneq ($$(file < $(BUILD)/$(patsubst %.cc,%.unit,$(firstword $(1)))),$(wordlist 2,$(TOGETHER),$(1)))
$(BUILD)/$(patsubst %.cc,%.o,$(firstword $(1))): again
endif
endef
in_units = $(if $(1),$(eval $(call one_unit,$(wordlist 1,$(TOGETHER),$(1))))$(call in_units,$(filter-out $(wordlist 1,$(TOGETHER),$(1)),$(1))))
HEADS := $(ALONE)
$(foreach d,$(LIB_DIRS) tests/unit,$(call in_units,$(filter-out $(MAIN_SRCS) $(SOME_SRCS) $(ALONE),$(wildcard $(d)/*.cc))))
objects_of = $(patsubst %.cc,$(BUILD)/%.o,$(filter $(HEADS),$(1)))
LIB_OBJS := $(call objects_of,$(LIB_SRCS)) $(PROTOS:%.proto=$(BUILD)/%.pb.o) $(BUILD)/interceptors/inprocess/image.o
UNIT_SRCS := $(wildcard tests/unit/*.cc)
UNIT_OBJS := $(call objects_of,$(UNIT_SRCS))
# Each of these becomes a program build/NAME that tests run.
FUZZ_SRCS := $(wildcard tests/fuzz/*.cc)
HELPER_SRCS := $(wildcard tests/fault/*.cc tests/system/*.cc) $(FUZZ_SRCS)
HELPERS  := $(addprefix $(BUILD)/,$(notdir $(basename $(HELPER_SRCS))))
FUZZERS  := $(addprefix $(BUILD)/,$(notdir $(basename $(FUZZ_SRCS))))
SOURCES  := $(LIB_SRCS) $(MAIN_SRCS) $(SOME_SRCS) $(UNIT_SRCS) $(HELPER_SRCS)
# The sanitizers of this build, in the form of -fsanitize=.
SANITIZE ?=
ifneq ($(SANITIZE),)
# With these checks GCC 12 takes variables in <regex> for uninitialized. Whether memory is an object of a type (vptr) is found out with a pipe,
# for which some tests leave no descriptors.
CXXFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=$(SANITIZE) -fno-sanitize=vptr -fno-sanitize-recover=all -Wno-maybe-uninitialized
REPORTS  := $(BUILD)/base/sanitizer_reports.o
# Its signal handler may interrupt the sanitizers' own code.
$(BUILD)/interceptors/trapped_instructions.o: CXXFLAGS += -fno-sanitize=all $(if $(filter thread,$(SANITIZE)),-DREDRIVE_COUNTER_IS_READ)
endif
MADE_HERE := $(wildcard $(addsuffix /*.h,$(LIB_DIRS))) $(SOURCES)

# Recorded programs include make itself: they must not see our job server.
RUN = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL REDRIVE=$(abspath $(BUILD)/redrive) REDRIVE_BUILD=$(abspath $(BUILD))

# System tests at once, where there are as many processors.
JOBS ?= $(if $(filter 1,$(shell nproc)),1,2)

all: $(BUILD)/redrive $(BUILD)/redrived ## build build/redrive and build/redrived

# The code inside tracees: a flat binary at a fixed address, without libc, and without extended registers, which it would have to save.
GATE := interceptors/inprocess
GATE_FLAGS := -std=c++20 $(WARN) -I. -MMD -MP -O2 -ffreestanding -fbuiltin -fno-exceptions -fno-rtti -fno-stack-protector -fno-pic \
  -mgeneral-regs-only -mno-red-zone -fcf-protection=none -fno-asynchronous-unwind-tables -fno-jump-tables \
  -fno-tree-loop-distribute-patterns -mmemcpy-strategy=unrolled_loop:256:noalign,rep_8byte:-1:noalign -DXXH_FORCE_MEMORY_ACCESS=1
GATE_OBJS := $(patsubst %.cc,$(BUILD)/%.o,$(wildcard $(GATE)/*.cc))
$(GATE_OBJS): $(BUILD)/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) $(GATE_FLAGS) -c -o $@ $<

$(BUILD)/$(GATE)/gate.bin: $(GATE)/gate.ld $(GATE_OBJS)
	ld -T $(GATE)/gate.ld -o $(BUILD)/$(GATE)/gate.elf $(GATE_OBJS)
	objcopy -O binary $(BUILD)/$(GATE)/gate.elf $@

$(BUILD)/$(GATE)/image.o: $(GATE)/image.S $(BUILD)/$(GATE)/gate.bin
	$(CXX) -c -DGATE_IMAGE='"$(BUILD)/$(GATE)/gate.bin"' -o $@ $<

-include $(GATE_OBJS:.o=.d)

$(BUILD)/libredrive.a: $(LIB_OBJS)
	@rm -f $@
	ar rcs $@ $^

# Linked at a fixed address, with those libraries inside that take long to load or to relocate: otherwise these are more than half of
# redrive's start-up, which is part of each recording and each replay; what nothing uses of them is left out. A newer libseccomp may know
# the names of more calls. Sanitizers replace functions of a shared C++ library.
ifeq ($(SANITIZE),)
FMT_LIBRARY := $(BUILD)/base/fmt_library.o
ARCHIVES := -lsqlite3 -lxxhash -lcapstone -lunwind-x86_64 -lunwind
INSIDE := -static-libstdc++ -static-libgcc $(foreach lib,$(filter-out -lfmt,$(LIBS:-lgcc_s=-lgcc_eh)),\
  $(if $(filter $(lib),$(ARCHIVES)),$(lib:-l%=-l:lib%.a),$(lib))) -l:liblzma.a -lm -Wl,--gc-sections
else
INSIDE := $(LIBS)
endif
$(BUILD)/redrive: $(BUILD)/supervisor/cli/main.o $(BUILD)/interceptors/other_processors.o $(FMT_LIBRARY) $(REPORTS) $(BUILD)/libredrive.a
	$(CXX) $(CXXFLAGS) $(LDFLAGS) -no-pie -o $@ $^ $(INSIDE)

$(BUILD)/redrived: $(BUILD)/supervisor/daemon/main.o $(REPORTS) $(BUILD)/libredrive.a
	$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/unit_tests: $(UNIT_OBJS) $(REPORTS) $(BUILD)/libredrive.a
	$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

define helper_rule
$(BUILD)/$(notdir $(basename $(1))): $(BUILD)/$(basename $(1)).o $(REPORTS) $(BUILD)/libredrive.a
	$$(CXX) $$(CXXFLAGS) $$(LDFLAGS) -o $$@ $$^ $$(LIBS)
endef
$(foreach source,$(HELPER_SRCS),$(eval $(call helper_rule,$(source))))

$(BUILD)/%.o: %.cc | $(PB_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) $(if $(WITH),-Wno-subobject-linkage $(addprefix -include ,$(WITH))) -c -o $@ $<
	@echo $(WITH) > $(@:.o=.unit)

$(BUILD)/interceptors/other_processors.o: interceptors/other_processors.S
	@mkdir -p $(@D)
	$(CXX) -c -o $@ $<

$(PB_HEADERS): $(BUILD)/%.pb.h: %.proto
	@mkdir -p $(@D)
	protoc --cpp_out=$(BUILD) $<

$(PB_HEADERS:.h=.o): %.o: %.h $(PB_HEADERS)
	$(CXX) $(filter-out $(WARN),$(ALL_CXXFLAGS)) -c -o $@ $*.cc

# Compiled faster. What they test is optimized as it is installed.
$(UNIT_OBJS): CXXFLAGS += -O1

# GCC 12 reports a wrong delete in a std::future of a std::variant.
$(UNIT_OBJS): WARN += -Wno-free-nonheap-object

-include $(SOURCES:%.cc=$(BUILD)/%.d)

tests: $(BUILD)/redrive $(BUILD)/redrived $(BUILD)/unit_tests $(HELPERS) ## build everything that the tests need

# CRIU is only of use to root.
deps: ## install missing packages, and for root a CRIU that works (Debian 12 and 13); needs root only if packages are missing
	scripts/deps.sh
	@if [ "$$(id -u)" = 0 ]; then scripts/deps.sh --criu || echo "make deps: redrive works without CRIU, except for what README.md says" >&2; fi

unit: $(BUILD)/unit_tests ## unit tests
	$(BUILD)/unit_tests

simulate: $(BUILD)/unit_tests ## check every policy's promise, and the recorder on a simulated kernel, on 100,000 random executions (minutes)
	REDRIVE_EXECUTIONS=100000 $(BUILD)/unit_tests -tc="promises:*,*simulated kernel*"

check: ## dependencies (including those of the tests), unit tests, fuzzers, fast system tests (25 to 45 minutes on 2 processors)
	scripts/deps.sh --test
	$(MAKE) tests
	$(MAKE) unit fuzz asan-readers
	$(RUN) python3 tests/system/run.py --jobs $(JOBS)

check-all: ## all tests; installs the servers and MPI libraries that they record
	scripts/deps.sh --real
	$(MAKE) tests
	$(MAKE) unit fuzz-long
	$(RUN) python3 tests/system/run.py --jobs $(JOBS) --all
	$(MAKE) asan tsan

demo: all ## record a 4-process job and re-drive an interval from its middle
	$(RUN) scripts/demo.sh

bench: all ## measure costs relative to native runs
	scripts/deps.sh --bench
	$(RUN) python3 tests/bench/bench.py

soak: all ## record two servers for an hour with --keep, and check that nothing grows and that everything in the window replays
	$(RUN) python3 tests/bench/soak.py

idle: all ## measure what servers cost that nobody asks anything, recorded and attached to
	scripts/deps.sh --bench
	$(RUN) python3 tests/bench/idle.py

service: all ## measure what recording a service costs that systemd has started (needs root)
	scripts/deps.sh --bench
	$(RUN) python3 tests/bench/service.py

engines: all ## measure what checkpoints cost, made by redrive itself and by CRIU
	$(RUN) python3 tests/bench/engines.py

bounds: all ## measure whether replays keep their bound, and write tests/bench/bounds.md (an hour)
	scripts/deps.sh --bench
	$(RUN) python3 tests/bench/bounds.py

scaling: all ## measure how recording and replay scale with the number of units and processors
	scripts/deps.sh --bench
	$(RUN) python3 tests/bench/scaling.py

# Uses Debian's Python, which finds Debian's packages.
papers: ## write the papers' results beside ours into tests/bench/papers.md (40 to 100 minutes)
	scripts/deps.sh --bench
	$(MAKE) all
	$(RUN) /usr/bin/python3 tests/bench/papers.py

fuzz: $(FUZZERS) ## feed damaged and forged traces to the readers
	set -e; for fuzzer in $(FUZZERS); do $$fuzzer; done

fuzz-long: fuzz ## feed a million forged traces (half an hour)
	$(BUILD)/mutant_fuzz 1 1000000

# System tests that a sanitizer build runs. None of them measures time or limits memory, because sanitizers need several times as much
# of both.
SANITIZED_TESTS := programs/threads programs/stress_threads programs/fork_tree programs/served_signals programs/shared_memory \
  programs/shared_between programs/preempted programs/prefork_server programs/exec_chain programs/vfork_exec \
  programs/many_messages programs/compute_messages programs/private_views stops/threads stops/fork_tree \
  stops/signal_nested stops/shared_memory stops/preempted stops/tcp tiers preparing/fork_tree \
  preparing/stress_threads preparing/preempted preparing/shared_memory breakpoints/inspect breakpoints/joined \
  breakpoints/fork_tree breakpoints/preempted breakpoints/total_order confined faults/result \
  faults/payload faults/flipped_bits interrupts/left_behind

asan: ## unit tests, fuzzers and some system tests with address and undefined-behaviour checks
	$(MAKE) BUILD=build-asan SANITIZE=address,undefined fuzz sanitized

# What reads traces needs only a part of the library, which is built within a minute.
asan-readers: ## the readers of traces with address and undefined-behaviour checks: a part of asan
	$(MAKE) BUILD=build-asan-readers SANITIZE=address,undefined LIB_DIRS="base interceptors logstore logstore/policy" \
	  build-asan-readers/trace_fuzz
	build-asan-readers/trace_fuzz

tsan: ## unit tests and some system tests with checks for data races
	$(MAKE) BUILD=build-tsan SANITIZE=thread sanitized

sanitized: tests
	$(MAKE) unit
	$(RUN) python3 tests/system/run.py --timeout-factor 10 $(SANITIZED_TESTS)

tidy: $(PB_HEADERS) ## run clang-tidy and check the rules of locks; all findings are fatal
	clang-tidy --quiet $(LIB_SRCS) $(MAIN_SRCS) -- -std=c++20 -I. -isystem $(BUILD) -D_GNU_SOURCE -Wthread-safety

format: ## run clang-format on all sources
	clang-format -i $(MADE_HERE)

# Without debug information, which is most of the file.
$(BUILD)/stripped/%: $(BUILD)/%
	@mkdir -p $(@D)
	objcopy --only-keep-debug $< $@.debug
	objcopy --strip-all --add-gnu-debuglink=$@.debug $< $@

BASH_COMPLETIONS ?= $(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS  ?= $(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS ?= $(PREFIX)/share/fish/vendor_completions.d
# Where systemd and the message bus look, with PREFIX=/usr and with PREFIX=/usr/local.
SYSTEMD_UNITS ?= $(PREFIX)/lib/systemd/system
TMPFILES      ?= $(PREFIX)/lib/tmpfiles.d
DBUS_SERVICES ?= $(PREFIX)/share/dbus-1/system-services
DBUS_POLICIES ?= $(if $(filter /usr,$(PREFIX)),/usr/share,/etc)/dbus-1/system.d
install: $(BUILD)/stripped/redrive $(BUILD)/stripped/redrived ## install into PREFIX (/usr/local) below DESTDIR: stripped, with man pages, completions and the daemon
	install -D -m 755 $< $(DESTDIR)$(PREFIX)/bin/redrive
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(wildcard man/*.1)
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man5 $(wildcard man/*.5)
	install -d $(DESTDIR)$(BASH_COMPLETIONS) $(DESTDIR)$(ZSH_COMPLETIONS) $(DESTDIR)$(FISH_COMPLETIONS)
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man7 $(wildcard man/*.7)
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man8 $(wildcard man/*.8)
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/redrive/examples examples/orders.c examples/orders.service
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/share/doc/redrive/examples examples/ask
	install -D -m 755 $(BUILD)/stripped/redrived $(DESTDIR)$(PREFIX)/sbin/redrived
	install -D -m 644 -t $(DESTDIR)$(DBUS_POLICIES) supervisor/daemon/org.redrive.Supervisor1.conf
	install -D -m 644 supervisor/daemon/redrived.tmpfiles.conf $(DESTDIR)$(TMPFILES)/redrived.conf
	install -d $(DESTDIR)$(SYSTEMD_UNITS) $(DESTDIR)$(DBUS_SERVICES)
	sed 's|@PREFIX@|$(PREFIX)|' supervisor/daemon/redrived.service.in > $(DESTDIR)$(SYSTEMD_UNITS)/redrived.service
	sed 's|@PREFIX@|$(PREFIX)|' supervisor/daemon/org.redrive.Supervisor1.service.in \
	  > $(DESTDIR)$(DBUS_SERVICES)/org.redrive.Supervisor1.service
	$< --completion bash > $(DESTDIR)$(BASH_COMPLETIONS)/redrive
	$< --completion zsh > $(DESTDIR)$(ZSH_COMPLETIONS)/_redrive
	$< --completion fish > $(DESTDIR)$(FISH_COMPLETIONS)/redrive.fish

install-debug: $(BUILD)/stripped/redrive ## install debug information for what `install` installs, where gdb finds it
	install -D -m 644 $<.debug $(DESTDIR)$(PREFIX)/bin/.debug/redrive.debug

deb: $(BUILD)/stripped/redrive ## build a package for this Debian release in BUILD
	MAKE="$(MAKE)" BUILD="$(BUILD)" scripts/deb.sh

compile_commands.json: ## make this file for editors and clang tools
	@python3 -c 'import json, sys; json.dump([{"directory": sys.argv[1], "file": f, "command": sys.argv[2] + " -c " + f} \
	  for f in sys.argv[3:]], open("$@", "w"), indent=1)' "$(CURDIR)" "$(CXX) $(filter-out -MMD -MP,$(ALL_CXXFLAGS))" $(SOURCES)

clean: ## remove what was built
	rm -rf $(BUILD) build-asan build-tsan

help: ## show this list
	@sed -nE 's/^([a-z_.-]+):[^#]*## (.*)/  \1\t\2/p' Makefile | expand -t 26

.PHONY: again all tests deps unit simulate check check-all demo bench idle service bounds engines scaling soak papers fuzz fuzz-long asan asan-readers tsan sanitized tidy format install install-debug deb compile_commands.json clean help
