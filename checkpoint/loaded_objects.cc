#include "checkpoint/loaded_objects.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <optional>

#include "checkpoint/auxiliary_vector.h"

namespace redrive {
namespace {

constexpr size_t kMostObjects = 4096, kMostHeaders = 64, kMostTags = 256, kLongestName = 4096;

template <typename T>
std::optional<T> value_at(const ReadMemory& read, Address address) {
  T value;
  return read(address, {reinterpret_cast<uint8_t*>(&value), sizeof value}) ? std::optional(value) : std::nullopt;
}

template <typename T>
Address address_of(T* pointer) {
  return reinterpret_cast<Address>(pointer);
}

// Read within one page at a time, because nothing may follow the string.
std::string string_at(const ReadMemory& read, Address address) {
  std::string text;
  while (text.size() < kLongestName) {
    const Address at = address + text.size();
    std::string piece(page_down(at) + kPageSize - at, '\0');
    if (!read(at, {reinterpret_cast<uint8_t*>(piece.data()), piece.size()})) return {};
    const size_t end = piece.find('\0');
    text += piece.substr(0, end);
    if (end != std::string::npos) return text;
  }
  return {};
}

// What the program's dynamic section says where the loader's list is; 0 if it does not.
Address debugger_list(const ReadMemory& read, std::span<const uint8_t> auxiliary_vector) {
  const auto headers = auxiliary_value(auxiliary_vector, AT_PHDR), count = auxiliary_value(auxiliary_vector, AT_PHNUM);
  if (!headers || !count) return 0;
  Address moved = 0;
  std::optional<Address> dynamic;
  for (uint64_t i = 0; i < std::min<uint64_t>(*count, kMostHeaders); ++i) {
    const auto header = value_at<Elf64_Phdr>(read, *headers + i * sizeof(Elf64_Phdr));
    if (!header) return 0;
    if (header->p_type == PT_PHDR) moved = *headers - header->p_vaddr;
    if (header->p_type == PT_DYNAMIC) dynamic = header->p_vaddr;
  }
  for (uint64_t i = 0; dynamic && i < kMostTags; ++i) {
    const auto tag = value_at<Elf64_Dyn>(read, *dynamic + moved + i * sizeof(Elf64_Dyn));
    if (!tag || tag->d_tag == DT_NULL) return 0;
    if (tag->d_tag == DT_DEBUG) return tag->d_un.d_ptr;
  }
  return 0;
}

}  // namespace

std::vector<LoadedObject> loaded_objects(const ReadMemory& read, std::span<const uint8_t> auxiliary_vector) {
  std::vector<LoadedObject> objects;
  const Address list = debugger_list(read, auxiliary_vector);
  const auto debug = list ? value_at<r_debug>(read, list) : std::nullopt;
  for (Address at = debug ? address_of(debug->r_map) : 0; at && objects.size() < kMostObjects;) {
    const auto entry = value_at<link_map>(read, at);
    if (!entry) break;
    objects.push_back({address_of(entry->l_ld), string_at(read, address_of(entry->l_name))});
    at = address_of(entry->l_next);
  }
  return objects;
}

}  // namespace redrive
