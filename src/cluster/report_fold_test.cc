#include "cluster/report_fold.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "cluster/job_layout.h"

namespace tutti {
namespace {

cluster::Row& add_row(cluster::JobReport& report, cluster::Row::What what, uint64_t epoch,
                      const RangeSet& processes, const RangeSet& hosts = {}) {
  cluster::Row& row = *report.add_rows();
  row.set_what(what);
  row.set_epoch(epoch);
  set_pairs(processes, row.mutable_processes());
  set_pairs(hosts, row.mutable_hosts());
  return row;
}

RangeSet processes_of(const cluster::Row& row) { return set_from(row.processes()).value(); }
RangeSet hosts_of(const cluster::Row& row) { return set_from(row.hosts()).value(); }

TEST_CASE("rows that say the same become one, with the processes and hosts of all") {
  cluster::JobReport report;
  report.set_job(7);
  for (uint32_t host = 1; host <= 1000; ++host)
    add_row(report, cluster::Row::STARTED, 5, RangeSet(8 * host, 8 * host + 7), RangeSet(host));
  fold_rows(report);
  CHECK(report.job() == 7);
  REQUIRE(report.rows_size() == 1);
  CHECK(processes_of(report.rows(0)) == RangeSet(8, 8007));
  CHECK(hosts_of(report.rows(0)) == RangeSet(1, 1000));
}

TEST_CASE("rows that differ in anything but their sets stay apart") {
  cluster::JobReport report;
  add_row(report, cluster::Row::STARTED, 5, RangeSet(1));
  add_row(report, cluster::Row::STARTED, 6, RangeSet(2));
  add_row(report, cluster::Row::STARTED, 5, RangeSet(3)).set_count(1);
  add_row(report, cluster::Row::ENDED, 5, RangeSet(4));
  add_row(report, cluster::Row::EXITED, 5, RangeSet(5)).mutable_exit()->set_code(1);
  add_row(report, cluster::Row::EXITED, 5, RangeSet(6)).mutable_exit()->set_code(2);
  add_row(report, cluster::Row::NOT_STARTED, 5, RangeSet(7)).set_message("no such file");
  add_row(report, cluster::Row::NOT_STARTED, 5, RangeSet(8)).set_message("denied");
  add_row(report, cluster::Row::VALUE, 5, RangeSet(9)).set_value("a");
  add_row(report, cluster::Row::VALUE, 5, RangeSet(10)).set_value("b");
  fold_rows(report);
  CHECK(report.rows_size() == 10);
}

TEST_CASE("folding in any order and in any steps gives the same bytes") {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 draw(seed);
    std::vector<cluster::Row> rows;
    for (int i = 0; i < 30; ++i) {
      cluster::JobReport one;
      add_row(one, draw() % 2 == 0 ? cluster::Row::STARTED : cluster::Row::EXITED, draw() % 2,
              RangeSet(static_cast<uint32_t>(draw() % 50)),
              RangeSet(static_cast<uint32_t>(draw() % 10)));
      rows.push_back(one.rows(0));
    }
    const auto folded = [&](size_t cut) {
      cluster::JobReport part;
      for (size_t i = 0; i < cut; ++i) *part.add_rows() = rows[i];
      fold_rows(part);
      for (size_t i = cut; i < rows.size(); ++i) *part.add_rows() = rows[i];
      fold_rows(part);
      return part.SerializeAsString();
    };
    const std::string whole = folded(0);
    CHECK(folded(draw() % 30) == whole);
    std::ranges::shuffle(rows, draw);
    CHECK(folded(draw() % 30) == whole);
  }
}

TEST_CASE("reports one after the other are one report") {
  cluster::JobReport first;
  first.set_job(7);
  add_row(first, cluster::Row::STARTED, 5, RangeSet(1));
  cluster::JobReport second;
  second.set_job(7);
  add_row(second, cluster::Row::STARTED, 5, RangeSet(2));
  cluster::JobReport both;
  CHECK(both.ParseFromString(first.SerializeAsString() + second.SerializeAsString()));
  fold_rows(both);
  REQUIRE(both.rows_size() == 1);
  CHECK(processes_of(both.rows(0)) == RangeSet(1, 2));
}

TEST_CASE("a row whose sets make no sense is left out, others stay") {
  cluster::JobReport report;
  add_row(report, cluster::Row::STARTED, 5, RangeSet(1));
  add_row(report, cluster::Row::EXITED, 5, RangeSet(1)).add_processes(9);
  fold_rows(report);
  REQUIRE(report.rows_size() == 1);
  CHECK(report.rows(0).what() == cluster::Row::STARTED);
  cluster::JobReport empty;
  fold_rows(empty);
  CHECK(empty.rows_size() == 0);
}

}  // namespace
}  // namespace tutti
