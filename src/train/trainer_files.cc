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

// What of a part of a tensor, that begins at `first`, belongs to a worker's shards: in bytes.
struct Piece {
  size_t to;
  size_t from;
  size_t bytes;
};

std::vector<Piece> pieces_of(const Shards& shards, size_t first, size_t bytes) {
  constexpr auto kEach = static_cast<int64_t>(sizeof(float));
  const auto begin = static_cast<int64_t>(first) / kEach;
  const auto end = begin + static_cast<int64_t>(bytes) / kEach;
  std::vector<Piece> pieces;
  for (int64_t row = 0; row < shards.rows; ++row) {
    const int64_t own = row * shards.row + shards.own_first();
    const int64_t from = std::max(own, begin);
    const int64_t to = std::min(own + shards.own(), end);
    if (from >= to) continue;
    pieces.push_back({.to = static_cast<size_t>((row * shards.own() + from - own) * kEach),
                      .from = static_cast<size_t>((from - begin) * kEach),
                      .bytes = static_cast<size_t>((to - from) * kEach)});
  }
  return pieces;
}

}  // namespace

Type Trainer::type_of(const Parameter& parameter, bool of_moments) const {
  const ShardingOptions& sharding = options_.step.sharding;
  return of_moments ? moments_type(parameter, sharding) : weights_type(parameter, sharding);
}

Result<Bytes> Trainer::whole(const Parameter& parameter, const std::string& name, bool of_moments,
                             std::unique_ptr<std::byte[]>& room) const {
  const auto bytes = static_cast<size_t>(parameter.type.bytes());
  if (type_of(parameter, of_moments) == parameter.type) return Bytes(state(name), bytes);
  room = std::make_unique<std::byte[]>(bytes);
  const Shards shards = shards_of(parameter, options_.step.sharding);
  const auto own = static_cast<size_t>(shards.own()) * sizeof(float);
  const auto row = static_cast<size_t>(shards.row) * sizeof(float);
  for (size_t i = 0; i < static_cast<size_t>(shards.rows); ++i)
    TRY_DO(host_.workers->gather_shards({state(name) + i * own, own}, {room.get() + i * row, row}));
  return Bytes(room.get(), bytes);
}

// Of all workers, of which only one keeps what it gathers.
Result<Trainer::Whole> Trainer::whole_tensors(bool with_moments) const {
  Whole all;
  for (const auto& [name_of, of_moments] : kinds_of(with_moments)) {
    for (const Parameter& parameter : model_.parameters) {
      std::unique_ptr<std::byte[]> room;
      TRY(const Bytes data, whole(parameter, name_of(parameter.name), of_moments, room));
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
    for (const Parameter& parameter : model_.parameters) {
      std::byte* data = state(name_of(parameter.name));
      const bool all = type_of(parameter, of_moments) == parameter.type;
      const Shards shards = shards_of(parameter, options_.step.sharding);
      TRY_DO(each_part(
          parameter,
          [&, name_of](const std::string& name, const std::vector<uint64_t>& shape, size_t first,
                       size_t) -> Result<void> {
            TRY(const Bytes bytes, file.tensor(name_of(name), parameter.type.dtype, shape));
            if (all) {
              copies.emplace_back(data + first, bytes);
              return {};
            }
            for (const Piece& piece : pieces_of(shards, first, bytes.size()))
              copies.emplace_back(data + piece.to, bytes.subspan(piece.from, piece.bytes));
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
  CO_TRY(Whole all, whole_tensors(true));
  if (!writes_files()) co_return {};
  metadata[kFormatKey] = kFormat;
  metadata[kStepKey] = fmt::format("{}", steps_done());
  auto written = co_await write_safetensors(disk, std::move(path), std::move(all.tensors),
                                            std::move(metadata));
  co_return written;
}

Task<Result<void>> Trainer::save_weights(Disk& disk, std::string path,
                                         std::map<std::string, std::string> metadata) const {
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
      std::memset(state(name_of(parameter.name)), 0,
                  static_cast<size_t>(type_of(parameter, true).bytes()));
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
  if (type_of(*own, false) != own->type)
    return fail(Code::unsupported, "each worker keeps a shard of {}: save all, and read the file",
                parameter.name);
  return reinterpret_cast<const float*>(state(parameter.name));
}

uint64_t Trainer::digest() const {
  Hasher hasher;
  for (const auto& [name_of, of_moments] : kinds_of(true))
    for (const Parameter& parameter : model_.parameters)
      hasher.update(Bytes(state(name_of(parameter.name)),
                          static_cast<size_t>(type_of(parameter, of_moments).bytes())));
  return hasher.digest64();
}

Result<uint64_t> Trainer::whole_digest() const {
  Hasher hasher;
  for (const auto& [name_of, of_moments] : kinds_of(true))
    for (const Parameter& parameter : model_.parameters) {
      std::unique_ptr<std::byte[]> room;
      TRY(const Bytes data, whole(parameter, name_of(parameter.name), of_moments, room));
      hasher.update(data);
    }
  return hasher.digest64();
}

}  // namespace tutti
