// What a trainer keeps in files.
#include <fmt/format.h>

#include <algorithm>
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

struct Kind {
  NameOf name_of;
  bool of_moments;
};

std::vector<Kind> kinds_of(bool with_moments) {
  if (!with_moments) return {{itself, false}};
  return {{itself, false}, {first_moment_name, true}, {second_moment_name, true}};
}

}  // namespace

Type Trainer::type_of(const Parameter& own, bool of_moments) const {
  const ShardingOptions& sharding = options_.step.sharding;
  return of_moments ? moments_type(own, sharding) : weights_type(own, sharding);
}

Result<Bytes> Trainer::unsharded(const Parameter& own, const std::string& name, bool of_moments,
                                 Room& room) const {
  const auto bytes = static_cast<size_t>(own.type.bytes());
  if (type_of(own, of_moments) == own.type) return Bytes(state(name), bytes);
  room = std::make_unique<std::byte[]>(bytes);
  const Shards shards = shards_of(own, options_.step.sharding);
  const auto each = static_cast<size_t>(shards.own()) * sizeof(float);
  const auto row = static_cast<size_t>(shards.row) * sizeof(float);
  for (size_t i = 0; i < static_cast<size_t>(shards.rows); ++i)
    TRY_DO(
        host_.workers->gather_shards({state(name) + i * each, each}, {room.get() + i * row, row}));
  return Bytes(room.get(), bytes);
}

Result<Bytes> Trainer::whole(size_t parameter, const std::string& name, bool of_moments,
                             Room& room) const {
  TRY(const Bytes own, unsharded(own_[parameter], name, of_moments, room));
  const LocalTensor& part = parts_[parameter];
  if (part.local == part.whole) return own;
  const ShardMesh& mesh = options_.step.place.mesh;
  const auto all = std::make_unique<std::byte[]>(own.size() * static_cast<size_t>(mesh.ranks()));
  TRY_DO(host_.workers->gather_parts(own,
                                     {all.get(), own.size() * static_cast<size_t>(mesh.ranks())}));
  auto joined = std::make_unique<std::byte[]>(static_cast<size_t>(part.whole.bytes()));
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const std::byte* from = all.get() + own.size() * static_cast<size_t>(rank);
    each_run(local_tensor(part.name, part.whole, part.sharding, mesh, rank), 0,
             part.local.elements(), [&](int64_t in_part, int64_t in_whole, int64_t count) {
               std::memcpy(joined.get() + static_cast<size_t>(in_whole) * sizeof(float),
                           from + static_cast<size_t>(in_part) * sizeof(float),
                           static_cast<size_t>(count) * sizeof(float));
             });
  }
  room = std::move(joined);
  return Bytes(room.get(), static_cast<size_t>(part.whole.bytes()));
}

// Of all workers, of which only one keeps what it gathers.
Result<Trainer::Whole> Trainer::whole_tensors(bool with_moments) {
  TRY_DO(meet_parts());
  Whole all;
  for (const auto& [name_of, of_moments] : kinds_of(with_moments)) {
    for (size_t i = 0; i < own_.size(); ++i) {
      const Parameter& parameter = model_.parameters[i];
      Room room;
      TRY(const Bytes data, whole(i, name_of(parameter.name), of_moments, room));
      if (!writes_files()) continue;
      if (room != nullptr) all.rooms.push_back(std::move(room));
      TRY_DO(each_part(parameter,
                       [&, name_of](const std::string& name, const std::vector<uint64_t>& shape,
                                    size_t first, size_t bytes) -> Result<void> {
                         all.tensors.push_back({.name = name_of(name),
                                                .dtype = parameter.type.dtype,
                                                .shape = shape,
                                                .data = data.subspan(first, bytes)});
                         return {};
                       }));
    }
  }
  return all;
}

// Looks at all of them before any is written.
Result<void> Trainer::read_all(const SafetensorsFile& file, bool with_moments) {
  std::vector<std::pair<std::byte*, Bytes>> copies;
  for (const auto& [name_of, of_moments] : kinds_of(with_moments)) {
    for (size_t i = 0; i < own_.size(); ++i) {
      const Parameter& parameter = model_.parameters[i];
      std::vector<Bytes> layers;
      TRY_DO(each_part(parameter,
                       [&, name_of](const std::string& name, const std::vector<uint64_t>& shape,
                                    size_t, size_t) -> Result<void> {
                         TRY(const Bytes bytes,
                             file.tensor(name_of(name), parameter.type.dtype, shape));
                         layers.push_back(bytes);
                         return {};
                       }));
      std::byte* data = state(name_of(parameter.name));
      each_piece(i, of_moments, [&](size_t at, int64_t layer, int64_t first, int64_t elements) {
        copies.emplace_back(data + at, layers[static_cast<size_t>(layer)].subspan(
                                           static_cast<size_t>(first) * sizeof(float),
                                           static_cast<size_t>(elements) * sizeof(float)));
      });
    }
  }
  words_[kBorn] = 0;
  step_->states_changed();
  for (const auto& [to, from] : copies) std::memcpy(to, from.data(), from.size());
  return {};
}

Task<Result<void>> Trainer::save(Disk& disk, std::string path,
                                 std::map<std::string, std::string> metadata) {
  CO_TRY(Whole all, whole_tensors(true));
  if (!writes_files()) co_return {};
  metadata[kFormatKey] = kFormat;
  metadata[kStepKey] = fmt::format("{}", steps_done());
  auto written = co_await write_safetensors(disk, std::move(path), std::move(all.tensors),
                                            std::move(metadata));
  co_return written;
}

Task<Result<void>> Trainer::save_weights(Disk& disk, std::string path,
                                         std::map<std::string, std::string> metadata) {
  CO_TRY(Whole all, whole_tensors(false));
  if (!writes_files()) co_return {};
  metadata[kFormatKey] = kFormat;
  auto written = co_await write_safetensors(disk, std::move(path), std::move(all.tensors),
                                            std::move(metadata));
  co_return written;
}

Task<Result<void>> Trainer::load(Disk& disk, std::string path) {
  CO_TRY(const auto file, co_await open_safetensors(disk, path));
  CO_TRY(const int64_t step, step_of(*file));
  CO_TRY_DO(read_all(*file, true));
  begin_at(step);
  co_return {};
}

Task<Result<void>> Trainer::load_weights(Disk& disk, std::string path) {
  CO_TRY(const auto file, co_await open_safetensors(disk, path));
  CO_TRY_DO(read_all(*file, false));
  for (const Parameter& parameter : own_)
    for (const NameOf name_of : {first_moment_name, second_moment_name})
      std::memset(state(name_of(parameter.name)), 0,
                  static_cast<size_t>(type_of(parameter, true).bytes()));
  begin_at(0);
  co_return {};
}

Result<const float*> Trainer::weights(const Parameter& parameter) const {
  const auto known = std::ranges::find(model_.parameters, parameter.name, &Parameter::name);
  if (known == model_.parameters.end() || known->type != parameter.type)
    return fail(Code::not_found, "the model that is trained has no {}: {}", parameter.name,
                parameter.type.text());
  const auto index = static_cast<size_t>(known - model_.parameters.begin());
  if (type_of(own_[index], false) != known->type)
    return fail(Code::unsupported, "each worker keeps a part of {}: save all, and read the file",
                parameter.name);
  return reinterpret_cast<const float*>(state(parameter.name));
}

uint64_t Trainer::digest() const {
  Hasher hasher;
  for (const auto& [name_of, of_moments] : kinds_of(true))
    for (const Parameter& parameter : own_)
      hasher.update(Bytes(state(name_of(parameter.name)),
                          static_cast<size_t>(type_of(parameter, of_moments).bytes())));
  return hasher.digest64();
}

Result<uint64_t> Trainer::whole_digest() {
  TRY_DO(meet_parts());
  Hasher hasher;
  for (const auto& [name_of, of_moments] : kinds_of(true))
    for (size_t i = 0; i < own_.size(); ++i) {
      Room room;
      TRY(const Bytes data, whole(i, name_of(own_[i].name), of_moments, room));
      hasher.update(data);
    }
  return hasher.digest64();
}

}  // namespace tutti
