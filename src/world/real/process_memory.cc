#include "world/real/process_memory.h"

#include "world/real/pages.h"

namespace tutti {
namespace {

class PagesMapping final : public Mapping {
 public:
  explicit PagesMapping(Pages pages) : Mapping(pages.bytes()), pages_(std::move(pages)) {}

 private:
  Pages pages_;
};

}  // namespace

Result<std::unique_ptr<Mapping>> RealProcessMemory::allocate(uint64_t bytes) {
  TRY(Pages pages, Pages::make(bytes));
  return std::make_unique<PagesMapping>(std::move(pages));
}

void RealProcessMemory::populate(MutableBytes part) { populate_pages(part); }

std::optional<uint64_t> RealProcessMemory::available_bytes() { return available_memory_bytes(); }

}  // namespace tutti
