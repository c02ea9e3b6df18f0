// The fabric for Python: arrays in the heap, groups and their calls. Arrays of any library come as
// they are (DLPack or the buffer protocol); none is copied here. Calls wait without the GIL, and
// Ctrl-C ends a wait.
#include "fabric.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "fabric/bucket.h"
#include "fabric/group.h"
#include "plan.h"
#include "python_fabric.h"
#include "raise.h"

namespace nb = nanobind;

namespace {

using tutti::Call;
using tutti::CallKind;
using tutti::Code;
using tutti::DType;
using tutti::Duration;
using tutti::Result;

using AnyArray = nb::ndarray<nb::device::cpu>;
using AnyInput = nb::ndarray<nb::ro, nb::device::cpu>;  // may be read-only

// How long a wait goes on before Python's signals are looked at.
constexpr Duration kSlice = std::chrono::milliseconds(50);

Duration seconds(double value) {
  return Duration(static_cast<int64_t>(std::min(value, 1e9) * 1e9));
}

template <class Array>
bool contiguous(const Array& array) {
  if (array.size() == 0) return true;
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

[[noreturn]] void raise_invalid(std::string text) {
  raise(tutti::Error(Code::invalid, std::move(text)));
}

// Elements of the type that the caller says these bytes are of.
template <class Array>
uint64_t elements_of(const Array& array, DType type) {
  if (!contiguous(array)) raise_invalid("an array must be contiguous; see numpy.ascontiguousarray");
  return array.nbytes() / tutti::dtype_bytes(type);
}

// NumPy's name of what DLPack has.
std::string name_of(nb::dlpack::dtype type) {
  const auto is = [&](nb::dlpack::dtype_code code) { return type.code == static_cast<int>(code); };
  const std::string bits = std::to_string(type.bits);
  if (type.lanes != 1) raise_invalid("arrays of vectors cannot be moved; view them as numbers");
  if (is(nb::dlpack::dtype_code::Bool)) return "bool";
  if (is(nb::dlpack::dtype_code::Bfloat)) return "bfloat" + bits;
  if (is(nb::dlpack::dtype_code::Complex)) return "complex" + bits;
  if (is(nb::dlpack::dtype_code::Float)) return "float" + bits;
  return (is(nb::dlpack::dtype_code::UInt) ? "uint" : "int") + bits;
}

// An object that has nothing but the protocol of DLPack, as NumPy's array of its bytes, the name of
// its type, and its shape; what may not be written stays so.
nb::tuple dlpack_bytes(const nb::object& given) {
  AnyArray writable;
  AnyInput array;
  const bool may_write = nb::try_cast(given, writable);
  if (!may_write && !nb::try_cast(given, array))
    raise_invalid("an array must be in memory of the processor");
  const auto flat = [&]<class Byte>(const auto& seen) {
    if (!contiguous(seen))
      raise_invalid("an array must be contiguous; see numpy.ascontiguousarray");
    using Seen = std::decay_t<decltype(seen)>;
    auto* kept = new Seen(seen);
    const nb::capsule owner(kept,
                            [](void* pointer) noexcept { delete static_cast<Seen*>(pointer); });
    nb::list shape;
    for (size_t i = 0; i < seen.ndim(); ++i) shape.append(seen.shape(i));
    const size_t bytes[] = {seen.nbytes()};
    return nb::make_tuple(
        nb::cast(nb::ndarray<nb::numpy, Byte>(static_cast<Byte*>(seen.data()), 1, bytes, owner)),
        name_of(seen.dtype()), nb::tuple(shape));
  };
  if (may_write) return flat.template operator()<uint8_t>(writable);
  return flat.template operator()<const uint8_t>(array);
}

}  // namespace

PythonFabric::PythonFabric(double timeout_s, std::string transport, uint32_t streams,
                           bool checksums, bool encrypt, const std::optional<std::string>& tune) {
  tutti::RankFabricOptions options{.timeout = seconds(timeout_s),
                                   .transport = std::move(transport),
                                   .streams = streams,
                                   .checksums = checksums,
                                   .encrypt = encrypt};
  if (tune) options.tune = value_or_raise(tutti::parse_tune_when(*tune));
  rank_ = value_or_raise(tutti::RankFabric::open(std::move(options)));
}

// As tutti.fabric shows it.
nb::dict PythonFabric::tuning() {
  const std::scoped_lock lock(mutex_);
  const tutti::Tuning& now = fabric().tuning();
  const auto ways = [](const tutti::RailWays& some) {
    nb::dict by_size;
    for (size_t i = 0; i < some.size(); ++i) {
      const nb::object most =
          i < tutti::kRailBytes.size() ? nb::cast(tutti::kRailBytes[i]) : nb::none();
      by_size[most] = std::string(tutti::rail_way_name(some[i]));
    }
    return by_size;
  };
  nb::dict shown;
  shown["origin"] = std::string(tutti::tuning_origin_name(now.origin));
  shown["small_bytes"] = now.small_bytes;
  shown["stream_bytes"] = now.stream_bytes;
  shown["reduces"] = ways(now.reduces);
  shown["gathers"] = ways(now.gathers);
  return shown;
}

// In slices, so that Ctrl-C is heard.
void PythonFabric::wait_sliced(Duration timeout,
                               const std::function<Result<void>(Duration)>& some) {
  const tutti::Instant until = rank_->parking().now() + timeout;
  while (true) {
    Result<void> done;
    {
      const nb::gil_scoped_release others_may_run;
      const std::scoped_lock lock(mutex_);
      const Duration left = until - rank_->parking().now();
      done = some(std::min(kSlice, std::max(left, Duration(0))));
    }
    if (done) return;
    if (done.error().code() != Code::deadline || rank_->parking().now() >= until)
      raise(done.error());
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

void PythonFabric::join(double timeout_s) {
  wait_sliced(seconds(timeout_s), [&](Duration slice) { return fabric().join(slice); });
}

void PythonFabric::leave() {
  if (!rank_->here()) return;
  const std::scoped_lock lock(mutex_);
  fabric().leave();
}

// A part of the heap, as bytes that Python owns.
nb::object PythonFabric::empty(uint64_t bytes) {
  uint64_t offset = 0;
  {
    const std::scoped_lock lock(mutex_);
    offset = value_or_raise(fabric().heap().allocate(bytes));
  }
  struct Owned {
    std::shared_ptr<PythonFabric> fabric;
    uint64_t offset;
  };
  auto* owned = new Owned{shared_from_this(), offset};
  const nb::capsule owner(owned, [](void* pointer) noexcept {
    auto* mine = static_cast<Owned*>(pointer);
    {
      const std::scoped_lock lock(mine->fabric->mutex_);
      mine->fabric->fabric().heap().free(mine->offset);
    }
    delete mine;
  });
  const size_t shape[] = {bytes};
  return nb::cast(nb::ndarray<nb::numpy, uint8_t>(fabric().heap().at(offset), 1, shape, owner));
}

std::shared_ptr<void> PythonFabric::keep(nb::object object) {
  std::vector<PyObject*> over;
  {
    const std::scoped_lock lock(released_->mutex);
    over.swap(released_->objects);
  }
  for (PyObject* each : over) Py_DECREF(each);
  return {object.release().ptr(), [to = released_](PyObject* kept) {
            const std::scoped_lock lock(to->mutex);
            to->objects.push_back(kept);
          }};
}

tutti::Vault& PythonFabric::vault() {
  if (!vault_) {
    const uint64_t owner[] = {rank_->gang(), fabric().rank()};
    vault_ = value_or_raise(tutti::Vault::open(rank_->parking(), fabric().heap().vault(),
                                               tutti::hash64(std::as_bytes(std::span(owner)))));
  }
  return *vault_;
}

bool PythonFabric::holds(const AnyArray& array) {
  return fabric().heap().find(array.data(), array.nbytes()).has_value();
}

namespace {

// An operation, with what it works on.
struct PythonOperation {
  std::shared_ptr<PythonFabric> fabric;
  std::shared_ptr<tutti::Group> group;
  std::shared_ptr<tutti::Operation> operation;
  nb::object input;
  nb::object output;

  void wait(double timeout_s) {
    if (operation->done()) return;
    fabric->wait_sliced(seconds(timeout_s),
                        [&](Duration slice) { return group->wait(*operation, slice); });
  }
  bool poll() {
    auto polled = [&] {
      const nb::gil_scoped_release others_may_run;
      const std::scoped_lock lock(fabric->mutex());
      return group->poll(*operation);
    }();
    return value_or_raise(std::move(polled));
  }
};

// Buckets, with the arrays that they work on.
struct PythonBuckets {
  std::shared_ptr<PythonFabric> fabric;
  nb::list arrays;
  std::shared_ptr<tutti::Buckets> buckets;

  void ready(uint32_t array) {
    auto begun = [&] {
      const nb::gil_scoped_release others_may_run;
      const std::scoped_lock lock(fabric->mutex());
      return buckets->ready(array);
    }();
    if (!begun) raise(begun.error());
  }
  void wait(double timeout_s) {
    fabric->wait_sliced(seconds(timeout_s), [&](Duration slice) { return buckets->wait(slice); });
  }
};

struct CallableGroup : PythonGroup {
  PythonOperation start(const std::string& kind, std::optional<AnyInput> input,
                        std::optional<AnyArray> output, const std::string& op, uint64_t elements,
                        uint32_t root, int32_t distance, bool shared, std::vector<uint64_t> counts,
                        std::vector<uint64_t> incoming, uint32_t lanes, const nb::list& parts,
                        const std::string& type, std::string site) {
    Call call{.elements = elements,
              .root = root,
              .distance = distance,
              .shared_output = shared,
              .lanes = lanes,
              .counts = std::move(counts),
              .incoming = std::move(incoming),
              .site = std::move(site)};
    for (int i = 0; i <= static_cast<int>(CallKind::shift); ++i)
      if (tutti::call_kind_name(static_cast<CallKind>(i)) == kind)
        call.kind = static_cast<CallKind>(i);
    const auto known = tutti::reduce_op_named(op);
    if (!known) raise_invalid("op is 'sum', 'mean', 'max' or 'min', not '" + op + "'");
    call.op = *known;
    const auto named = tutti::dtype_named(type);
    if (!named) raise_invalid("'" + type + "' is no type of the fabric");
    call.type = *named;
    if (output) {
      call.output = static_cast<std::byte*>(output->data());
      call.output_elements = elements_of(*output, call.type);
    }
    if (input) {
      call.input = static_cast<const std::byte*>(input->data());
      call.input_elements = elements_of(*input, call.type);
    }
    const auto shape = [&call](const auto& array) {
      for (size_t i = 0; i < array.ndim(); ++i) call.shape.push_back(array.shape(i));
    };
    if (input && call.kind != CallKind::scatter) {
      shape(*input);
    } else if (output) {
      shape(*output);
    }
    nb::list held;
    for (nb::handle item : parts) {
      const auto [first, count, array] = nb::cast<std::tuple<uint32_t, uint32_t, AnyInput>>(item);
      if (elements_of(array, call.type) != elements)
        raise_invalid("parts of a reduction are as large as its output");
      call.parts.push_back({{first, count}, static_cast<const std::byte*>(array.data())});
      held.append(nb::cast(array));
    }
    PythonOperation begun{fabric, group, nullptr, nb::none(), nb::none()};
    begun.input = !call.parts.empty() ? nb::object(held) : input ? nb::cast(*input) : nb::none();
    begun.output = output ? nb::cast(*output) : nb::none();
    begin(begun, std::move(call));
    return begun;
  }

  PythonBuckets make_buckets(const nb::list& arrays, const std::vector<std::string>& types,
                             const std::string& op, uint64_t bytes, std::string site) {
    const auto known = tutti::reduce_op_named(op);
    if (!known) raise_invalid("op is 'sum', 'mean', 'max' or 'min', not '" + op + "'");
    PythonBuckets made{fabric, nb::list(), nullptr};
    std::vector<tutti::BucketTensor> tensors;
    for (nb::handle item : arrays) {
      const auto array = nb::cast<AnyArray>(item);
      const auto type = tutti::dtype_named(types.at(tensors.size()));
      if (!type) raise_invalid("'" + types[tensors.size()] + "' is no type of the fabric");
      auto* data = static_cast<std::byte*>(array.data());
      tensors.push_back(
          {.type = *type, .elements = elements_of(array, *type), .inputs = {data}, .output = data});
      made.arrays.append(nb::cast(array));
    }
    auto keeps = fabric->keep(made.arrays);
    auto buckets = [&] {
      const nb::gil_scoped_release others_may_run;
      const std::scoped_lock lock(fabric->mutex());
      return tutti::Buckets::make(
          group, std::move(tensors),
          {.op = *known, .bytes = bytes, .site = std::move(site), .keeps = std::move(keeps)});
    }();
    const auto drop = [kept = fabric](tutti::Buckets* dropped) {
      const std::scoped_lock lock(kept->mutex());  // it gives memory back
      delete dropped;
    };
    made.buckets = {value_or_raise(std::move(buckets)).release(), drop};
    return made;
  }

  // Arrays for each move each of its types; None where this rank holds nothing.
  PythonOperation reshard(const PythonPlan& plan, const nb::list& inputs, const nb::list& outputs,
                          std::string site) {
    Call call{.kind = CallKind::reshard, .plan = plan.plan, .site = std::move(site)};
    PythonOperation begun{fabric, group, nullptr, nb::list(), nb::list()};
    size_t next = 0;
    for (const tutti::Move& move : plan.plan->moves()) {
      for (const DType type : move.types) {
        const void* input = tensor<AnyInput>(move.name, move.from, type, inputs[next], begun.input);
        void* output = tensor<AnyArray>(move.name, move.to, type, outputs[next], begun.output);
        call.inputs.push_back(static_cast<const std::byte*>(input));
        call.outputs.push_back(static_cast<std::byte*>(output));
        ++next;
      }
    }
    begin(begun, std::move(call));
    return begun;
  }

  // Where an array lies that is what this rank holds in a layout; `held` keeps it.
  template <class Array>
  auto tensor(const std::string& name, const tutti::Layout& layout, DType type, nb::handle given,
              nb::object& held) const -> decltype(Array().data()) {
    if (given.is_none()) return nullptr;
    const uint32_t rank = fabric->fabric().rank();
    const auto place = layout.mesh().place_of(rank);
    if (!place)
      raise_invalid(
          fmt::format("rank {} has no part of {} ({}); give None", rank, name, layout.text()));
    Array array;
    if (!nb::try_cast(given, array))
      raise_invalid(
          fmt::format("of {} reshard takes arrays in memory of the processor, and writes "
                      "to none that are read-only",
                      name));
    const tutti::Box box = layout.box(*place);
    if (array.itemsize() != tutti::dtype_bytes(type))
      raise_invalid(fmt::format("{} is {}, but its array on rank {} has elements of {} bytes", name,
                                tutti::dtype_name(type), rank, array.itemsize()));
    bool fits = array.ndim() == box.dimensions;
    std::vector<size_t> shape(array.ndim());
    for (size_t i = 0; i < shape.size(); ++i) {
      shape[i] = array.shape(i);
      fits = fits && shape[i] == box.extent[i];
    }
    if (!fits)
      raise_invalid(fmt::format(
          "rank {} holds {} of {}, an array of shape [{}], but its array is [{}]; give what "
          "layout.shape_on({}) says",
          rank, box.text(), name, fmt::join(std::span(box.extent).first(box.dimensions), ", "),
          fmt::join(shape, ", "), rank));
    if (!contiguous(array))
      raise_invalid("an array must be contiguous; see numpy.ascontiguousarray");
    nb::cast<nb::list>(held).append(nb::cast(array));
    return array.data();
  }

  void begin(PythonOperation& begun, Call call) {
    call.keeps = fabric->keep(nb::make_tuple(begun.input, begun.output));
    auto started = [&] {
      const nb::gil_scoped_release others_may_run;
      const std::scoped_lock lock(fabric->mutex());
      return group->start(std::move(call));
    }();
    auto made = value_or_raise(std::move(started));
    tutti::Operation* const operation = made.get();
    begun.operation = {operation, [kept = fabric, last = std::move(made)](auto*) mutable {
                         const std::scoped_lock lock(kept->mutex());  // it gives memory back
                         last.reset();
                       }};
  }

  nb::object shared_bytes(uint64_t bytes) {
    Result<std::byte*> place = nullptr;
    {
      const nb::gil_scoped_release others_may_run;
      const std::scoped_lock lock(fabric->mutex());
      place = group->allocate_shared(bytes);
    }
    std::byte* data = value_or_raise(std::move(place));
    const size_t shape[] = {bytes};
    auto* keep = new std::shared_ptr<PythonFabric>(fabric);
    const nb::capsule owner(keep, [](void* pointer) noexcept {
      delete static_cast<std::shared_ptr<PythonFabric>*>(pointer);
    });
    return nb::cast(nb::ndarray<nb::numpy, uint8_t>(data, 1, shape, owner));
  }

  std::vector<uint32_t> ranks() const {
    std::vector<uint32_t> all(group->size());
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = group->rank_of(i);
    return all;
  }
};

}  // namespace

void bind_fabric(nb::module_& module) {
  module.def("dlpack_bytes", dlpack_bytes, nb::arg("array"));
  module.def(
      "whole_lanes",
      [](uint32_t lanes, uint32_t holders, uint32_t holder) {
        std::vector<std::pair<uint32_t, uint32_t>> nodes;
        for (const tutti::LaneRange node :
             tutti::whole_nodes(tutti::share_of_lanes(lanes, holders, holder), lanes))
          nodes.emplace_back(node.first, node.count);
        return nodes;
      },
      nb::arg("lanes"), nb::arg("holders"), nb::arg("holder"));
  nb::class_<PythonFabric>(module, "Fabric", "This rank among those that share its memory.")
      .def_static(
          "open",
          [](double timeout, std::string transport, uint32_t streams, bool checksums, bool encrypt,
             const std::optional<std::string>& tune) {
            return std::make_shared<PythonFabric>(timeout, std::move(transport), streams, checksums,
                                                  encrypt, tune);
          },
          nb::arg("timeout"), nb::arg("transport"), nb::arg("streams"), nb::arg("checksums"),
          nb::arg("encrypt"), nb::arg("tune") = nb::none())
      .def("join", &PythonFabric::join, nb::arg("timeout"))
      .def("leave", &PythonFabric::leave)
      .def("empty", &PythonFabric::empty, nb::arg("bytes"))
      .def("holds", &PythonFabric::holds, nb::arg("array"))
      .def("lost", [](PythonFabric& self) { return self.fabric().lost(); })
      .def_prop_ro("rank", [](PythonFabric& self) { return self.fabric().rank(); })
      .def_prop_ro("size", [](PythonFabric& self) { return self.fabric().world_size(); })
      .def_prop_ro("epoch", [](PythonFabric& self) { return self.fabric().epoch(); })
      .def_prop_ro("tuning", &PythonFabric::tuning)
      .def("world",
           [](const std::shared_ptr<PythonFabric>& self) {
             return CallableGroup{{self, self->fabric().world()}};
           })
      .def(
          "group",
          [](const std::shared_ptr<PythonFabric>& self, std::vector<uint32_t> ranks,
             std::string name, const std::string& site) {
            auto made = [&] {
              const nb::gil_scoped_release others_may_run;
              const std::scoped_lock lock(self->mutex());
              return self->fabric().group(std::move(ranks), std::move(name), site);
            }();
            return CallableGroup{{self, value_or_raise(std::move(made))}};
          },
          nb::arg("ranks"), nb::arg("name"), nb::arg("site"));
  nb::class_<PythonOperation>(module, "FabricOperation")
      .def("wait", &PythonOperation::wait, nb::arg("timeout"))
      .def("poll", &PythonOperation::poll)
      .def_prop_ro("done", [](PythonOperation& self) { return self.operation->done(); });
  nb::class_<PythonBuckets>(module, "FabricBuckets")
      .def("ready", &PythonBuckets::ready, nb::arg("array"))
      .def("wait", &PythonBuckets::wait, nb::arg("timeout"))
      .def_prop_ro("size", [](PythonBuckets& self) { return self.buckets->size(); })
      .def_prop_ro("copied_bytes",
                   [](PythonBuckets& self) { return self.buckets->copied_bytes(); });
  const nb::class_<PythonGroup> base(module, "FabricGroupBase");
  nb::class_<CallableGroup, PythonGroup>(module, "FabricGroup")
      .def("start", &CallableGroup::start, nb::arg("kind"), nb::arg("input").none(),
           nb::arg("output").none(), nb::arg("op"), nb::arg("elements"), nb::arg("root"),
           nb::arg("distance"), nb::arg("shared"), nb::arg("counts"), nb::arg("incoming"),
           nb::arg("lanes"), nb::arg("parts"), nb::arg("type"), nb::arg("site"))
      .def("reshard", &CallableGroup::reshard, nb::arg("plan"), nb::arg("inputs"),
           nb::arg("outputs"), nb::arg("site"))
      .def("buckets", &CallableGroup::make_buckets, nb::arg("arrays"), nb::arg("types"),
           nb::arg("op"), nb::arg("bytes"), nb::arg("site"))
      .def("shared_bytes", &CallableGroup::shared_bytes, nb::arg("bytes"))
      .def_prop_ro("ranks", &CallableGroup::ranks)
      .def_prop_ro("index", [](CallableGroup& self) { return self.group->index(); })
      .def_prop_ro("name", [](CallableGroup& self) { return self.group->name(); });
}
