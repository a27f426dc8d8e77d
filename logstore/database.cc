#include "logstore/database.h"

#include "base/check.h"

namespace redrive {

Error Database::error() const { return Error{"cannot write " + path_ + ": " + sqlite3_errmsg(handle_.get())}; }

Result<Database> Database::open(const std::string& path) {
  sqlite3* handle = nullptr;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;  // of one thread
  const int opened = sqlite3_open_v2(path.c_str(), &handle, kFlags, nullptr);
  Database database(handle, path);
  if (opened != SQLITE_OK) return database.error();
  // The file is made beside its place and renamed: if this is cut short, nobody has seen it.
  // The pages that fill up, a few for each unit at work, are written once; the recorder has this memory as long as it
  // runs.
  TRY(
      database.run("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"
                   "PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY;"));
  return database;
}

Result<void> Database::run(const char* sql) {
  if (sqlite3_exec(get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) return error();
  return {};
}

Bytes Database::contents() const {
  sqlite3_int64 size = 0;
  const std::unique_ptr<unsigned char, void (*)(void*)> data(sqlite3_serialize(get(), "main", &size, 0), sqlite3_free);
  CHECK(data != nullptr);
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
  CHECK(bound == columns_);
  if (sqlite3_step(statement_.get()) != SQLITE_DONE) return database_->error();
  sqlite3_reset(statement_.get());
  return {};
}

Result<Selector> Selector::prepare(const Database& database, const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) return database.error();
  return Selector(database, statement);
}

Result<bool> Selector::next() {
  const int result = sqlite3_step(statement_.get());
  if (result != SQLITE_ROW && result != SQLITE_DONE) return database_->error();
  return result == SQLITE_ROW;
}

}  // namespace redrive
