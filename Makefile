# redrive. `make` builds build/redrive; `make help` lists the targets.
CXX      ?= g++
BUILD    ?= build
CXXFLAGS ?= -O2 -g
LDFLAGS  ?=
WARN     := -Wall -Wextra -Werror
ALL_CXXFLAGS = -std=c++20 $(WARN) -I. -pthread -D_GNU_SOURCE -MMD -MP $(CXXFLAGS)
LIBS     := -lsqlite3 -lzstd -lxxhash -lfmt -lcapstone -lunwind-ptrace -lunwind-x86_64 -lunwind -pthread

LIB_DIRS := base logstore logstore/policy interceptors checkpoint supervisor
LIB_SRCS := $(filter-out supervisor/main.cc,$(foreach d,$(LIB_DIRS),$(wildcard $(d)/*.cc)))
LIB_OBJS := $(LIB_SRCS:%.cc=$(BUILD)/%.o)
UNIT_SRCS := $(wildcard tests/unit/*.cc)
UNIT_OBJS := $(UNIT_SRCS:%.cc=$(BUILD)/%.o)

all: $(BUILD)/redrive

$(BUILD)/libredrive.a: $(LIB_OBJS)
	@rm -f $@
	ar rcs $@ $^

$(BUILD)/redrive: $(BUILD)/supervisor/main.o $(BUILD)/libredrive.a
	$(CXX) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/unit_tests: $(UNIT_OBJS) $(BUILD)/libredrive.a
	$(CXX) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) -c -o $@ $<

-include $(LIB_OBJS:.o=.d) $(UNIT_OBJS:.o=.d) $(BUILD)/supervisor/main.d

.PHONY: all
