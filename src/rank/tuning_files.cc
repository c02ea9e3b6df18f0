#include "rank/tuning_files.h"

#include "world/real/cache_files.h"

namespace tutti {

namespace {

constexpr uint64_t kMostBytes = 4096;

std::string name_of(const TuningShape& shape, const std::string& processor) {
  return "fabric/" + tuning_file_name(shape, processor);
}

}  // namespace

const std::string& TuningFiles::processor() {
  if (processor_.empty()) processor_ = processor_name();
  return processor_;
}

std::optional<Tuning> TuningFiles::load(const TuningShape& shape) {
  const auto folder = cache_folder();
  if (!folder) return std::nullopt;
  const auto text = read_cache_file(*folder, name_of(shape, processor()), kMostBytes);
  if (!text) return std::nullopt;
  const auto tuning = parse_tuning(*text, shape, processor());
  return tuning ? std::optional(*tuning) : std::nullopt;
}

// Who cannot keep it measures again next time.
void TuningFiles::save(const TuningShape& shape, const Tuning& tuning) {
  const auto folder = cache_folder();
  if (!folder) return;
  (void)write_cache_file(*folder, name_of(shape, processor()),
                         tuning_text(tuning, shape, processor()));
}

}  // namespace tutti
