#include "train/weights_file.h"

#include <cstring>

namespace tutti {

Result<void> read_parameter(const SafetensorsFile& file, const Parameter& parameter,
                            std::byte* to) {
  std::vector<uint64_t> shape;
  for (const Dim& dim : parameter.type.dims) shape.push_back(static_cast<uint64_t>(dim.size));
  const uint64_t layers = parameter.stacked() ? shape.front() : 1;
  if (parameter.stacked()) shape.erase(shape.begin());
  for (uint64_t layer = 0; layer < layers; ++layer) {
    const std::string name = layer_name(parameter.name, static_cast<int64_t>(layer));
    TRY(const Bytes bytes, file.tensor(name, parameter.type.dtype, shape));
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
  return {};
}

}  // namespace tutti
