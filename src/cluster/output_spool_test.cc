#include "cluster/output_spool.h"

#include <doctest/doctest.h>

#include <map>

#include "world/sim/simulator.h"

namespace tutti {
namespace {

struct Piece {
  uint32_t process;
  uint32_t stream;
  std::string text;
  bool operator==(const Piece&) const = default;
};

std::vector<Piece> pieces_of(std::string_view bytes) {
  std::vector<Piece> pieces;
  while (!bytes.empty()) {
    REQUIRE(bytes.size() >= kSpoolHeaderBytes);
    const std::byte* header = as_bytes(bytes).data();
    const auto size = load_le<uint32_t>(header + 8);
    REQUIRE(bytes.size() >= kSpoolHeaderBytes + size);
    pieces.push_back({load_le<uint32_t>(header), load_le<uint32_t>(header + 4),
                      std::string(bytes.substr(kSpoolHeaderBytes, size))});
    bytes.remove_prefix(kSpoolHeaderBytes + size);
  }
  return pieces;
}

struct Bench {
  ~Bench() { host.scope().kill(); }

  // A pipe into the spool, and its end to print into.
  std::unique_ptr<Stream> open(uint32_t process, uint8_t stream) {
    auto pipe = host.processes().pipe().value();
    REQUIRE(spool.read_from(process, stream, std::move(pipe.reader)).has_value());
    return host.network().adopt(std::move(pipe.writer)).value();
  }
  static Task<void> write(Stream& to, std::string text) {
    const Bytes bytes = as_bytes(text);
    auto written = co_await to.write(bytes);
    CHECK(written.has_value());
  }
  void print(Stream& to, std::string text) {
    host.scope().spawn(write(to, std::move(text)));
    sim.run_for(20ms);
  }
  static Task<void> write_many(Stream& to, std::string text, int times, bool& done) {
    const Bytes bytes = as_bytes(text);
    for (int i = 0; i < times; ++i) {
      auto written = co_await to.write(bytes);
      CHECK(written.has_value());
    }
    done = true;
  }
  static Task<void> finish_it(Bench& bench, Duration patience) {
    co_await bench.spool.finish(patience);
    bench.finished = true;
  }
  bool finish(Duration patience, Duration within) {
    host.scope().spawn(finish_it(*this, patience));
    sim.run_for(within);
    return finished;
  }
  static Task<void> read_once(Bench& bench, uint64_t& place, Duration patience,
                              std::optional<std::string>& into) {
    const Instant deadline = bench.host.clock().now() + patience;
    cluster::OutputRequest from;
    from.set_place(place);
    auto reading = bench.spool.read(std::move(from));
    auto piece = co_await with_deadline(bench.host.clock(), deadline, std::move(reading));
    if (piece) place = piece->place();
    into = piece ? piece->pieces() : "";
  }
  static Task<void> read_into(Bench& bench, cluster::OutputRequest from,
                              std::optional<cluster::OutputPiece>& into) {
    auto piece = co_await bench.spool.read(std::move(from));
    if (piece) into = std::move(*piece);
  }
  cluster::OutputPiece read_piece(const cluster::OutputRequest& from) {
    std::optional<cluster::OutputPiece> piece;
    host.scope().spawn(read_into(*this, from, piece));
    sim.run_for(20ms);
    REQUIRE(piece.has_value());
    return *piece;
  }
  // Everything from the place on, until nothing comes at once.
  std::vector<Piece> read_all(uint64_t& place) {
    std::vector<Piece> all;
    while (true) {
      std::optional<std::string> bytes;
      host.scope().spawn(read_once(*this, place, 20ms, bytes));
      sim.run_for(50ms);
      REQUIRE(bytes.has_value());
      if (bytes->empty()) return all;
      for (Piece& piece : pieces_of(*bytes)) all.push_back(std::move(piece));
    }
  }

  Simulator sim{{.hosts = 1}};
  SimHost& host = sim.host(0);
  OutputSpool spool{host, "/job"};
  bool finished = false;
};

TEST_CASE("events are told from where they were, in one life; another begins with what it found") {
  Bench bench;
  for (uint32_t process = 0; process < 3; ++process) {
    cluster::ProcessEvent event;
    event.set_process(process);
    bench.spool.note(std::move(event));
  }
  bench.spool.set_last_epoch(7);
  bench.spool.close();
  cluster::OutputRequest from;
  const cluster::OutputPiece first = bench.read_piece(from);
  CHECK(first.events_size() == 3);
  CHECK(!first.over());
  from.set_event(first.event());
  from.set_life(first.life());
  const cluster::OutputPiece rest = bench.read_piece(from);
  CHECK(rest.over());
  CHECK(rest.epoch() == 7);
  from.set_life(first.life() + 1);
  CHECK(bench.read_piece(from).events_size() == 3);
}

TEST_CASE("what processes print is kept in order, with who printed it, and the end of it") {
  Bench bench;
  auto out = bench.open(3, 1);
  auto error = bench.open(3, 2);
  auto other = bench.open(70'000, 1);
  bench.print(*out, "one ");
  bench.print(*error, "oops");
  bench.print(*out, "two");
  bench.print(*other, "hello");
  CHECK(bench.spool.open_pipes() == 3);
  out.reset();
  bench.sim.run_for(20ms);
  CHECK(bench.spool.open_pipes() == 2);
  uint64_t place = 0;
  CHECK(bench.read_all(place) ==
        std::vector<Piece>{
            {3, 1, "one "}, {3, 2, "oops"}, {3, 1, "two"}, {70'000, 1, "hello"}, {3, 1, ""}});
  CHECK(bench.read_all(place).empty());
  bench.print(*other, "again");
  CHECK(bench.read_all(place) == std::vector<Piece>{{70'000, 1, "again"}});
  error.reset();
  other.reset();
  CHECK(bench.finish(1s, 2s));
}

TEST_CASE("a reader waits for what is printed next, until its deadline or the end") {
  Bench bench;
  auto out = bench.open(1, 1);
  uint64_t place = 0;
  std::optional<std::string> got;
  bench.host.scope().spawn(Bench::read_once(bench, place, 1h, got));
  bench.sim.run_for(1s);
  CHECK_FALSE(got.has_value());
  bench.print(*out, "at last");
  REQUIRE(got.has_value());
  CHECK(pieces_of(*got).at(0).text == "at last");

  std::optional<std::string> late;
  bench.host.scope().spawn(Bench::read_once(bench, place, 5s, late));
  bench.sim.run_for(4s);
  CHECK_FALSE(late.has_value());
  bench.sim.run_for(2s);
  CHECK(late == "");

  std::optional<std::string> last;
  std::optional<std::string> after;
  bench.host.scope().spawn(Bench::read_once(bench, place, 1h, last));
  out.reset();
  CHECK(bench.finish(1s, 2s));
  REQUIRE(last.has_value());
  CHECK(pieces_of(*last).at(0).text == "");  // the end of the stream
  bench.host.scope().spawn(Bench::read_once(bench, place, 1h, after));
  bench.sim.run_for(20ms);
  CHECK(after == "");
}

TEST_CASE("much output is kept whole, however it is cut") {
  Bench bench;
  auto out = bench.open(1, 1);
  std::string text(1'000'000, '\0');
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>('a' + (i * 7 + i / 999) % 26);
  bool done = false;
  bench.host.scope().spawn(Bench::write_many(*out, text, 3, done));
  bench.sim.run_for(5s);
  CHECK(done);
  uint64_t place = 0;
  std::string all;
  for (const Piece& piece : bench.read_all(place)) all += piece.text;
  CHECK(all == text + text + text);
  out.reset();
  CHECK(bench.finish(1s, 2s));
}

TEST_CASE("the oldest files go, and a slow reader skips what was dropped") {
  Bench bench;
  auto out = bench.open(1, 1);
  bench.print(*out, "the beginning");
  bool done = false;
  const std::string megabyte(1 << 20, 'x');
  constexpr int kMegabytes = 64 * (kSpoolFiles + 2);
  bench.host.scope().spawn(Bench::write_many(*out, megabyte, kMegabytes, done));
  for (int i = 0; i < 600 && !done; ++i) bench.sim.run_for(1s);
  REQUIRE(done);
  uint64_t place = 0;
  const std::vector<Piece> rest = bench.read_all(place);
  uint64_t bytes = 0;
  for (const Piece& piece : rest) {
    CHECK(piece.text != "the beginning");
    bytes += piece.text.size();
  }
  CHECK(place > uint64_t{kMegabytes} << 20);
  CHECK(bytes <= (kSpoolFileBytes + 8_MiB) * kSpoolFiles);
  CHECK(bytes >= kSpoolFileBytes * (kSpoolFiles - 1));
  out.reset();
  CHECK(bench.finish(1s, 2s));
}

TEST_CASE("a pipe that somebody else holds does not keep the spool from finishing") {
  Bench bench;
  auto out = bench.open(1, 1);
  auto held = bench.open(2, 1);
  bench.print(*held, "before");
  out.reset();
  bench.sim.run_for(20ms);
  CHECK_FALSE(bench.finish(500ms, 400ms));
  bench.sim.run_for(200ms);
  CHECK(bench.finished);
  CHECK(bench.spool.open_pipes() == 0);
  uint64_t place = 0;
  const std::vector<Piece> all = bench.read_all(place);
  CHECK(std::ranges::find(all, Piece{2, 1, "before"}) != all.end());
}

TEST_CASE("streams that end before anything was printed are told as events, and make no file") {
  Bench bench;
  auto silent = bench.open(3, 2);
  auto speaks = bench.open(4, 1);
  cluster::OutputRequest from;
  silent.reset();
  const cluster::OutputPiece first = bench.read_piece(from);
  REQUIRE(first.events_size() == 1);
  CHECK(first.events(0).process() == 3);
  CHECK(first.events(0).silent_stream() == 2);
  CHECK(first.place() == 0);
  CHECK_FALSE(bench.spool.used());
  bench.print(*speaks, "late");
  speaks.reset();
  CHECK(bench.finish(1h, 100ms));
  uint64_t place = 0;
  CHECK(bench.read_all(place) == std::vector<Piece>{{4, 1, "late"}, {4, 1, ""}});
}

TEST_CASE("a spool that nothing was printed into finishes at once and has nothing") {
  Bench bench;
  CHECK(bench.finish(1h, 100ms));
  uint64_t place = 0;
  CHECK(bench.read_all(place).empty());
}

}  // namespace
}  // namespace tutti
