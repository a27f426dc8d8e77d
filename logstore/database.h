// The parts of SQLite that the catalog needs: a file that is filled in one transaction by prepared statements.
#pragma once

#include <sqlite3.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace redrive {

class Database {
 public:
  // Opens an empty database; ":memory:" for one that has no file.
  static Result<Database> open(const std::string& path);
  Result<void> run(const char* sql);
  Bytes contents() const;  // of a database without a file
  sqlite3* get() const { return handle_.get(); }
  Error error() const;

 private:
  explicit Database(sqlite3* handle, std::string path) : handle_(handle, sqlite3_close), path_(std::move(path)) {}
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_;
  std::string path_;
};

// INSERT INTO TABLE VALUES(?, ...), any number of times.
class Inserter {
 public:
  static Result<Inserter> prepare(const Database& database, const std::string& table, int columns);

  // Unsigned numbers of 2^63 and more are stored as the negative number with the same bits, because SQLite has only
  // signed ones.
  template <typename... T>
  Result<void> operator()(const T&... values) {
    int column = 0;
    (bind(++column, values), ...);
    return step(column);
  }

 private:
  Inserter(const Database& database, sqlite3_stmt* statement, int columns)
      : database_(&database), statement_(statement, sqlite3_finalize), columns_(columns) {}
  template <typename T>
  void bind(int column, const T& value) {
    if constexpr (std::is_integral_v<T>) {
      sqlite3_bind_int64(statement_.get(), column, static_cast<sqlite3_int64>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      sqlite3_bind_double(statement_.get(), column, value);
    } else {
      const std::string_view text(value);
      sqlite3_bind_text(statement_.get(), column, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    }
  }
  template <typename T>
  void bind(int column, const std::optional<T>& value) {
    sqlite3_bind_null(statement_.get(), column);
    if (value) bind(column, value.value());
  }
  Result<void> step(int bound);

  const Database* database_;
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement_;
  int columns_;
};

// Inserts many rows of numbers at once. SQLite reads them from a virtual table (sqlite.org/vtab.html), which costs a
// third of a statement for each row. Not to be used after the database is closed.
class RowsInserter {
 public:
  // Call this once per table.
  static Result<RowsInserter> prepare(const Database& database, const std::string& table, int columns);

  // Takes whole rows, one after the other. Numbers are stored as by Inserter, absent ones as NULL.
  Result<void> operator()(std::span<const std::optional<uint64_t>> values);

 private:
  struct Source;  // of the virtual table; the database owns it
  struct SourceTable;
  RowsInserter(const Database& database, Source& source, sqlite3_stmt* statement)
      : database_(&database), source_(&source), statement_(statement, sqlite3_finalize) {}

  const Database* database_;
  Source* source_;
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement_;
};

}  // namespace redrive
