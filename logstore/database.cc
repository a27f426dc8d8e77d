#include "logstore/database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "base/assert.h"
#include "base/fd.h"

namespace redrive {

Error Database::error() const { return Error{"cannot write " + path_ + ": " + sqlite3_errmsg(handle_.get())}; }

Result<Database> Database::open(const std::string& path) {
  std::string opened_path = path;
  if (path != ":memory:") {
    // If there is a link, the file that it leads to must not be written.
    ::unlink(path.c_str());
    const Fd made(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!made) return errno_error("cannot create " + path);
    // SQLite needs a path that it can open, without a link in it.
    const std::filesystem::path named(path);
    std::error_code failure;
    const auto directory = std::filesystem::canonical(named.has_parent_path() ? named.parent_path() : ".", failure);
    if (failure) return Error{"cannot create " + path + ": " + failure.message()};
    opened_path = directory / named.filename();
  }
  sqlite3* handle = nullptr;
  constexpr int kFlags =
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX;  // one thread uses it
  const int opened = sqlite3_open_v2(opened_path.c_str(), &handle, kFlags, nullptr);
  Database database(handle, path);
  if (opened != SQLITE_OK) return database.error();
  // The file is made under another name and renamed: if this is interrupted, nobody has seen it. Rows are only added,
  // so few pages are being filled at a time, and each is written once.
  TRY(
      database.run("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"
                   "PRAGMA cache_size = -1024; PRAGMA temp_store = MEMORY;"));
  return database;
}

Result<void> Database::run(const char* sql) {
  if (sqlite3_exec(get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) return error();
  return {};
}

Bytes Database::contents() const {
  sqlite3_int64 size = 0;
  const std::unique_ptr<unsigned char, void (*)(void*)> data(sqlite3_serialize(get(), "main", &size, 0), sqlite3_free);
  ASSERT(data != nullptr);
  return Bytes(data.get(), data.get() + size);
}

Result<Inserter> Inserter::prepare(const Database& database, const std::string& table, int columns) {
  std::string sql = "INSERT INTO " + table + " VALUES(?";
  for (int i = 1; i < columns; i++) sql += ",?";
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database.get(), (sql + ")").c_str(), -1, &statement, nullptr) != SQLITE_OK)
    return database.error();
  return Inserter(database, statement, columns);
}

Result<void> Inserter::step(int bound) {
  ASSERT(bound == columns_);
  if (sqlite3_step(statement_.get()) != SQLITE_DONE) return database_->error();
  sqlite3_reset(statement_.get());
  return {};
}

struct RowsInserter::Source {
  int columns = 0;
  std::span<const std::optional<uint64_t>> values;
};

// What SQLite needs of the virtual table: its columns, and its rows from the first to the last.
struct RowsInserter::SourceTable : sqlite3_vtab {
  const Source* source = nullptr;

  struct Cursor : sqlite3_vtab_cursor {
    std::span<const std::optional<uint64_t>> left;
  };

  static const SourceTable& of(const sqlite3_vtab_cursor* cursor) {
    return *static_cast<const SourceTable*>(cursor->pVtab);
  }
  static int connect(sqlite3* database, void* source, int, const char* const*, sqlite3_vtab** made, char**) {
    auto table = std::make_unique<SourceTable>();
    table->source = static_cast<const Source*>(source);
    std::string columns = "c0";
    for (int i = 1; i < table->source->columns; ++i) columns += fmt::format(", c{}", i);
    const int declared = sqlite3_declare_vtab(database, ("CREATE TABLE source(" + columns + ")").c_str());
    if (declared == SQLITE_OK) *made = table.release();
    return declared;
  }
  static int disconnect(sqlite3_vtab* table) {
    delete static_cast<SourceTable*>(table);
    return SQLITE_OK;
  }
  static int best_index(sqlite3_vtab*, sqlite3_index_info*) { return SQLITE_OK; }
  static int open(sqlite3_vtab*, sqlite3_vtab_cursor** made) {
    *made = new Cursor{};
    return SQLITE_OK;
  }
  static int close(sqlite3_vtab_cursor* cursor) {
    delete static_cast<Cursor*>(cursor);
    return SQLITE_OK;
  }
  static int filter(sqlite3_vtab_cursor* cursor, int, const char*, int, sqlite3_value**) {
    static_cast<Cursor*>(cursor)->left = of(cursor).source->values;
    return SQLITE_OK;
  }
  static int next(sqlite3_vtab_cursor* cursor) {
    auto& left = static_cast<Cursor*>(cursor)->left;
    left = left.subspan(static_cast<size_t>(of(cursor).source->columns));
    return SQLITE_OK;
  }
  static int at_end(sqlite3_vtab_cursor* cursor) { return static_cast<Cursor*>(cursor)->left.empty(); }
  static int column(sqlite3_vtab_cursor* cursor, sqlite3_context* result, int column) {
    const auto& value = static_cast<Cursor*>(cursor)->left[static_cast<size_t>(column)];
    if (value) sqlite3_result_int64(result, static_cast<sqlite3_int64>(*value));
    return SQLITE_OK;
  }
  static int row_id(sqlite3_vtab_cursor* cursor, sqlite3_int64* id) {
    *id = -static_cast<sqlite3_int64>(static_cast<Cursor*>(cursor)->left.size());
    return SQLITE_OK;
  }
};

Result<RowsInserter> RowsInserter::prepare(const Database& database, const std::string& table, int columns) {
  static const sqlite3_module kModule = [] {
    sqlite3_module module{};
    module.xConnect = SourceTable::connect;
    module.xBestIndex = SourceTable::best_index;
    module.xDisconnect = SourceTable::disconnect;
    module.xOpen = SourceTable::open;
    module.xClose = SourceTable::close;
    module.xFilter = SourceTable::filter;
    module.xNext = SourceTable::next;
    module.xEof = SourceTable::at_end;
    module.xColumn = SourceTable::column;
    module.xRowid = SourceTable::row_id;
    return module;
  }();
  auto* const source = new Source{columns, {}};
  const std::string name = table + "_source";
  const auto destroy = [](void* made) { delete static_cast<Source*>(made); };
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_create_module_v2(database.get(), name.c_str(), &kModule, source, destroy) != SQLITE_OK ||
      sqlite3_prepare_v2(database.get(), ("INSERT INTO " + table + " SELECT * FROM " + name).c_str(), -1, &statement,
                         nullptr) != SQLITE_OK) {
    return database.error();
  }
  return RowsInserter(database, *source, statement);
}

Result<void> RowsInserter::operator()(std::span<const std::optional<uint64_t>> values) {
  ASSERT(values.size() % static_cast<size_t>(source_->columns) == 0);
  if (values.empty()) return {};
  source_->values = values;
  const int result = sqlite3_step(statement_.get());
  source_->values = {};
  if (result != SQLITE_DONE) return database_->error();
  sqlite3_reset(statement_.get());
  return {};
}

}  // namespace redrive
