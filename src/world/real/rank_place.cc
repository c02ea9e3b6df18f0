#include "world/real/rank_place.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "tutti/control_page.h"
#include "world/real/mapping.h"
#include "world/real/this_process.h"

namespace tutti {

namespace {

constexpr const char* kHeapVariable = "TUTTI_HEAP_FD";

class OwnMapping final : public Mapping {
 public:
  explicit OwnMapping(MutableBytes bytes) : Mapping(bytes) {}
  ~OwnMapping() override { munmap(bytes_.data(), bytes_.size()); }
  OwnMapping(const OwnMapping&) = delete;
  OwnMapping& operator=(const OwnMapping&) = delete;
};

Result<std::unique_ptr<Mapping>> map_own(uint64_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return fail_errno(errno, "map {}", format_bytes(bytes));
  return std::make_unique<OwnMapping>(MutableBytes(static_cast<std::byte*>(pages), bytes));
}

Result<uint64_t> number_in(const char* variable) {
  const char* text = getenv(variable);
  if (text == nullptr)
    return fail(Code::unavailable,
                "{} is not set: the fabric is for ranks that `tutti run` or `tutti submit` start",
                variable);
  uint64_t number = 0;
  const std::string_view all = text;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
  if (error != std::errc() || end != all.data() + all.size() || all.empty())
    return fail(Code::invalid, "{} is '{}', not a number", variable, all);
  return number;
}

Result<std::unique_ptr<Mapping>> map_all(const char* variable, std::string_view what) {
  TRY(const uint64_t fd, number_in(variable));
  struct stat info{};
  if (fstat(static_cast<int>(fd), &info) != 0)
    return fail_errno(errno, "map {}, descriptor {}", what, fd);
  return map_fd(static_cast<int>(fd), 0, static_cast<uint64_t>(info.st_size), true, what);
}

Result<void> find_agent(RankPlace& place) {
  const char* socket = getenv("TUTTI_EXCHANGE");
  if (socket == nullptr)
    return fail(Code::unsupported,
                "TUTTI_EXCHANGE is not set, and the ranks are not all on this host: nobody says "
                "where they are");
  place.exchange = socket;
  TRY(place.job, number_in("TUTTI_JOB"));
  TRY(place.life, number_in("TUTTI_EPOCH"));
  TRY(const uint64_t process, number_in("TUTTI_PROCESS"));
  place.process = static_cast<uint32_t>(process);
  return {};
}

Result<RankPlace> alone() {
  RankPlace place{.role = "alone", .alone = true};
  TRY(place.control, map_own(TUTTI_CONTROL_BYTES));
  TRY(place.heap, map_own(2 * std::bit_ceil(host_memory_bytes())));
  auto& page = *reinterpret_cast<tutti_control_page*>(place.control->bytes().data());
  page.epoch = 1;
  page.layout = TUTTI_CONTROL_LAYOUT;
  page.pid = getpid();
  page.magic = TUTTI_CONTROL_MAGIC;
  return place;
}

}  // namespace

Result<RankPlace> find_rank_place() {
  if (getenv(TUTTI_CONTROL_OFFSET_VARIABLE) == nullptr) return alone();
  if (getenv(kHeapVariable) == nullptr)
    return fail(Code::unsupported,
                "this job's keeper gives its ranks no memory in common: it is of an older tutti, "
                "and ends with its job");
  RankPlace place;
  TRY(const uint64_t offset, number_in(TUTTI_CONTROL_OFFSET_VARIABLE));
  place.slot = static_cast<uint32_t>(offset / TUTTI_CONTROL_BYTES);
  TRY(const uint64_t rank, number_in("RANK"));
  TRY(const uint64_t size, number_in("WORLD_SIZE"));
  place.rank = static_cast<uint32_t>(rank);
  place.world_size = static_cast<uint32_t>(size);
  TRY(const uint64_t here, number_in("LOCAL_WORLD_SIZE"));
  place.elsewhere = here != size;
  if (place.elsewhere) TRY_DO(find_agent(place));
  const char* transport = getenv("TUTTI_FABRIC_TRANSPORT");
  if (transport != nullptr && *transport != '\0') place.transport = transport;
  const char* role = getenv("ROLE_NAME");
  place.role = role == nullptr ? "" : role;
  TRY(place.control, map_all(TUTTI_CONTROL_FD_VARIABLE, "the control pages"));
  auto heap = map_all(kHeapVariable, "the heap");
  if (!heap && heap.error().code() == Code::exhausted)
    return fail(Code::exhausted,
                "{}: it takes addresses, and memory only where it is used; a limit on addresses "
                "(ulimit -v) leaves no room for it",
                heap.error().text());
  if (!heap) return fail(std::move(heap).error());
  place.heap = *std::move(heap);
  if (offset + TUTTI_CONTROL_BYTES > place.control->bytes().size())
    return fail(Code::invalid, "there is no control page at {}", offset);
  auto& page = *reinterpret_cast<tutti_control_page*>(place.control->bytes().data() + offset);
  __atomic_store_n(&page.pid, static_cast<int32_t>(getpid()), __ATOMIC_RELAXED);
  return place;
}

std::string fabric_tune_variable() {
  const char* said = getenv("TUTTI_FABRIC_TUNE");
  return said == nullptr ? "" : said;
}

}  // namespace tutti
