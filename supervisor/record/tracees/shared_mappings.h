// Where an address space shows shared objects: what /proc/PID/maps says of its shared mappings, kept up to date from
// the calls that change it, because reading it again takes longer the more mappings there are.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/remote.h"
#include "checkpoint/address_space.h"

namespace redrive {

class SharedMappings {
 public:
  struct View {
    Address start = 0;
    uint64_t offset = 0, length = 0;  // of the object, in bytes

    uint64_t end() const { return offset + length; }
  };

  // The mappings of the process that show part of this range of an object, and how many show the object at all. Both
  // read /proc/PID/maps if nothing is known, and find nothing if that fails.
  std::vector<View> of(pid_t pid, uint64_t device, uint64_t inode, FileRange range);
  size_t count(pid_t pid, uint64_t device, uint64_t inode);

  // This is mapped now, as the kernel shows it: it may have joined the mapping to those next to it.
  void add(const Mapping& mapping);
  // Nothing shared is mapped there any more.
  void remove(AddressRange range);
  // A call that failed may have unmapped some of what was mapped there.
  void look_again(pid_t pid, AddressRange range);
  // A call has moved memory (mremap(2)), or resized it.
  void moved(pid_t pid, AddressRange from, AddressRange to);
  // A call has detached what was attached there (shmdt(2)).
  void detached(pid_t pid, Address address);
  // The layout has changed in a way that is not reported here.
  void forget();

 private:
  using Object = std::pair<uint64_t, uint64_t>;  // device and inode
  struct Shown {
    Address end = 0;
    uint64_t offset = 0;
    Object object;
  };
  struct Views {
    std::set<std::pair<uint64_t, Address>> places;  // offset in the object, and where that is mapped
    uint64_t longest = 0;                           // at least as long as any of them
  };
  void read(pid_t pid);
  void read_again(pid_t pid, AddressRange range);
  bool any_in(AddressRange range) const;
  void insert(Address start, const Shown& shown);

  bool known_ = false;
  std::map<Address, Shown> shown_;  // by start; they do not overlap
  std::map<Object, Views> views_;
};

}  // namespace redrive
