// Tunings in the user's cache folder, one small file for each shape of machine and gang. A file
// that is damaged or of something else is as good as none, and written anew.
#pragma once

#include <string>

#include "fabric/tuning.h"

namespace tutti {

class TuningFiles final : public TuningStore {
 public:
  std::optional<Tuning> load(const TuningShape& shape) override;
  void save(const TuningShape& shape, const Tuning& tuning) override;

 private:
  const std::string& processor();
  std::string processor_;  // when it was asked for
};

}  // namespace tutti
