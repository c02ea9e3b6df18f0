// What a trainer keeps in files.
#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "base/hash.h"
#include "train/trainer.h"

namespace tutti {
namespace {

constexpr const char* kStepKey = "step";
constexpr const char* kFormatKey = "format";
constexpr const char* kFormat = "tutti";

// A parameter's tensors as files have them: one, or one for each layer.
template <class Visit>
Result<void> each_part(const Parameter& parameter, const Visit& visit) {
  std::vector<uint64_t> shape;
  for (const Dim& dim : parameter.type.dims) shape.push_back(static_cast<uint64_t>(dim.size));
  const auto bytes = static_cast<size_t>(parameter.type.bytes());
  if (!parameter.stacked()) return visit(parameter.name, shape, size_t{0}, bytes);
  const uint64_t layers = shape.front();
  shape.erase(shape.begin());
  const size_t each = bytes / layers;
  for (uint64_t layer = 0; layer < layers; ++layer)
    TRY_DO(
        visit(layer_name(parameter.name, static_cast<int64_t>(layer)), shape, layer * each, each));
  return {};
}

Result<int64_t> step_of(const SafetensorsFile& file) {
  const auto found = file.metadata().find(kStepKey);
  int64_t step = -1;
  if (found != file.metadata().end()) {
    const std::string& text = found->second;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), step);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size()) step = -1;
  }
  if (step < 0)
    return fail(
        Code::invalid,
        "{} does not say which step it is of: it has weights alone; begin a new run with them "
        "instead",
        file.path());
  return step;
}

// The moment's name of a tensor as files have it, or its own.
using NameOf = std::string (*)(std::string_view);
std::string itself(std::string_view name) { return std::string(name); }

std::vector<NameOf> kinds_of(bool with_moments) {
  if (!with_moments) return {itself};
  return {itself, first_moment_name, second_moment_name};
}

Task<Result<void>> another_writes() { co_return {}; }

}  // namespace

std::vector<SafeTensor> Trainer::tensors(bool with_moments) const {
  std::vector<SafeTensor> all;
  for (const NameOf name_of : kinds_of(with_moments)) {
    for (const Parameter& parameter : model_.parameters) {
      const std::byte* data = state(name_of(parameter.name));
      const auto added = each_part(parameter,
                                   [&](const std::string& name, const std::vector<uint64_t>& shape,
                                       size_t first, size_t bytes) -> Result<void> {
                                     all.push_back({.name = name_of(name),
                                                    .dtype = parameter.type.dtype,
                                                    .shape = shape,
                                                    .data = {data + first, bytes}});
                                     return {};
                                   });
      static_cast<void>(added);  // which cannot fail
    }
  }
  return all;
}

// Looks at all of them before any is written.
Result<void> Trainer::read_all(const SafetensorsFile& file, bool with_moments) {
  std::vector<std::pair<std::byte*, Bytes>> copies;
  for (const NameOf name_of : kinds_of(with_moments)) {
    for (const Parameter& parameter : model_.parameters) {
      std::byte* data = state(name_of(parameter.name));
      TRY_DO(each_part(parameter,
                       [&](const std::string& name, const std::vector<uint64_t>& shape,
                           size_t first, size_t) -> Result<void> {
                         TRY(const Bytes bytes,
                             file.tensor(name_of(name), parameter.type.dtype, shape));
                         copies.emplace_back(data + first, bytes);
                         return {};
                       }));
    }
  }
  words_[kBorn] = 0;
  step_->states_changed();
  for (const auto& [to, from] : copies) std::memcpy(to, from.data(), from.size());
  return {};
}

Task<Result<void>> Trainer::save(Disk& disk, std::string path,
                                 std::map<std::string, std::string> metadata) const {
  if (!writes_files()) return another_writes();
  metadata[kFormatKey] = kFormat;
  metadata[kStepKey] = fmt::format("{}", steps_done());
  std::vector<SafeTensor> all = tensors(true);
  return write_safetensors(disk, std::move(path), std::move(all), std::move(metadata));
}

Task<Result<void>> Trainer::save_weights(Disk& disk, std::string path,
                                         std::map<std::string, std::string> metadata) const {
  if (!writes_files()) return another_writes();
  metadata[kFormatKey] = kFormat;
  std::vector<SafeTensor> all = tensors(false);
  return write_safetensors(disk, std::move(path), std::move(all), std::move(metadata));
}

Task<Result<void>> Trainer::load(Disk& disk, std::string path) {
  CO_TRY(const auto file, co_await open_safetensors(disk, path));
  CO_TRY(const int64_t step, step_of(*file));
  CO_TRY_DO(read_all(*file, true));
  words_[kDone] = step;
  words_[kCommitting] = 0;
  words_[kBorn] = 1;
  co_return {};
}

Task<Result<void>> Trainer::load_weights(Disk& disk, std::string path) {
  CO_TRY(const auto file, co_await open_safetensors(disk, path));
  CO_TRY_DO(read_all(*file, false));
  for (const Parameter& parameter : model_.parameters)
    for (const NameOf name_of : {first_moment_name, second_moment_name})
      std::memset(state(name_of(parameter.name)), 0, static_cast<size_t>(parameter.type.bytes()));
  words_[kDone] = 0;
  words_[kCommitting] = 0;
  words_[kBorn] = 1;
  co_return {};
}

Result<const float*> Trainer::weights(const Parameter& parameter) const {
  const Parameter* own = model_.parameter(parameter.name);
  if (own == nullptr || own->type != parameter.type)
    return fail(Code::not_found, "the model that is trained has no {}: {}", parameter.name,
                parameter.type.text());
  return reinterpret_cast<const float*>(state(parameter.name));
}

uint64_t Trainer::digest() const {
  Hasher hasher;
  for (const NameOf name_of : kinds_of(true))
    for (const Parameter& parameter : model_.parameters)
      hasher.update(
          Bytes(state(name_of(parameter.name)), static_cast<size_t>(parameter.type.bytes())));
  return hasher.digest64();
}

}  // namespace tutti
