// Messages between two ranks, and regions that others read and write, for Python. Arrays come as
// they are (DLPack or the buffer protocol), contiguous; regions may lie apart.
#include "parcel.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fabric/parcel.h"
#include "python_fabric.h"
#include "raise.h"

namespace nb = nanobind;

namespace {

using tutti::Code;
using tutti::Result;
using AnyArray = nb::ndarray<nb::device::cpu>;
using AnyInput = nb::ndarray<nb::ro, nb::device::cpu>;  // may be read-only
using Numbers = std::vector<uint64_t>;
// Rank, offset, bytes of an element, shape, strides in bytes.
using RegionTuple = std::tuple<uint32_t, uint64_t, uint64_t, Numbers, Numbers>;

tutti::Duration seconds(double value) {
  return tutti::Duration(static_cast<int64_t>(std::min(value, 1e9) * 1e9));
}

template <class Array>
void check_contiguous(const Array& array) {
  int64_t expected = 1;
  for (size_t i = array.ndim(); array.size() != 0 && i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected)
      raise({Code::invalid, "an array must be contiguous; see numpy.ascontiguousarray"});
    expected *= static_cast<int64_t>(array.shape(i));
  }
}

tutti::MutableBytes room_of(const AnyArray& array) {
  check_contiguous(array);
  return {static_cast<std::byte*>(array.data()), array.nbytes()};
}

tutti::Bytes bytes_of(const AnyInput& array) {
  check_contiguous(array);
  return {static_cast<const std::byte*>(array.data()), array.nbytes()};
}

tutti::Priority priority_named(const std::string& name) {
  if (name == "urgent") return tutti::Priority::urgent;
  if (name == "normal") return tutti::Priority::normal;
  if (name == "bulk") return tutti::Priority::bulk;
  raise({Code::invalid, "priority is 'urgent', 'normal' or 'bulk', not '" + name + "'"});
}

tutti::Strides strides_of(uint64_t offset, uint64_t element, const Numbers& shape,
                          const Numbers& strides) {
  if (shape.size() > tutti::Strides::kMostLoops)
    raise({Code::invalid, "a region has at most 8 dimensions"});
  tutti::Strides place{.offset = offset, .run = element};
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return {.offset = offset};
    place.repeat(shape[i], strides[i]);
  }
  return place;
}

tutti::Region region_of(const RegionTuple& region) {
  const auto& [rank, offset, element, shape, strides] = region;
  return {rank, strides_of(offset, element, shape, strides)};
}

// A parcel, with what it works on.
struct PythonParcel {
  std::shared_ptr<PythonFabric> fabric;
  std::shared_ptr<tutti::Parcel> parcel;
  nb::object array;

  void wait(double timeout_s) {
    fabric->wait_sliced(seconds(timeout_s), [&](tutti::Duration slice) {
      return fabric->fabric().wait(*parcel, slice);
    });
  }
  bool poll() {
    auto polled = [&] {
      const nb::gil_scoped_release others_may_run;
      const std::scoped_lock lock(fabric->mutex());
      return fabric->fabric().poll(*parcel);
    }();
    return value_or_raise(std::move(polled));
  }
};

using Fabrics = std::shared_ptr<PythonFabric>;

template <class Array, class Begin>
PythonParcel begin(const Fabrics& fabric, const Array& array, const Begin& make) {
  auto begun = [&] {
    const nb::gil_scoped_release others_may_run;
    const std::scoped_lock lock(fabric->mutex());
    return make(fabric->fabric());
  }();
  return {fabric, value_or_raise(std::move(begun)), nb::cast(array)};
}

PythonParcel begin_send(const Fabrics& fabric, const AnyInput& array, uint32_t rank, uint64_t tag,
                        const std::string& priority, std::string site) {
  const tutti::SendOptions options{rank, tag, bytes_of(array), priority_named(priority),
                                   std::move(site)};
  return begin(fabric, array, [&](tutti::Fabric& mine) { return mine.send(options); });
}

PythonParcel begin_receive(const Fabrics& fabric, const AnyArray& array, uint32_t rank,
                           uint64_t tag, std::string site) {
  const tutti::ReceiveOptions options{rank, tag, room_of(array), std::move(site)};
  return begin(fabric, array, [&](tutti::Fabric& mine) { return mine.receive(options); });
}

PythonParcel begin_put(const Fabrics& fabric, const AnyInput& array, const RegionTuple& region,
                       const std::string& priority, std::string site) {
  const tutti::PutOptions options{region_of(region), bytes_of(array), priority_named(priority),
                                  std::move(site)};
  return begin(fabric, array, [&](tutti::Fabric& mine) { return mine.put(options); });
}

PythonParcel begin_get(const Fabrics& fabric, const AnyArray& array, const RegionTuple& region,
                       const std::string& priority, std::string site) {
  const tutti::GetOptions options{region_of(region), room_of(array), priority_named(priority),
                                  std::move(site)};
  return begin(fabric, array, [&](tutti::Fabric& mine) { return mine.get(options); });
}

RegionTuple shown_region(const Fabrics& fabric, const AnyInput& array) {
  const auto offset = fabric->fabric().heap().find(array.data(), 0);
  if (!offset) raise({Code::invalid, "this array is not in the heap; adopt() it first"});
  Numbers shape;
  Numbers strides;
  for (size_t i = 0; i < array.ndim(); ++i) {
    if (array.stride(i) < 0 && array.shape(i) > 1)
      raise({Code::invalid, "a region cannot run backwards"});
    shape.push_back(array.shape(i));
    strides.push_back(static_cast<uint64_t>(std::max<int64_t>(array.stride(i), 0)) *
                      array.itemsize());
  }
  const auto place = strides_of(*offset, array.itemsize(), shape, strides);
  (void)value_or_raise(fabric->fabric().region(place));
  return {fabric->fabric().rank(), *offset, array.itemsize(), shape, strides};
}

}  // namespace

void bind_parcel(nb::module_& module) {
  nb::class_<PythonParcel>(module, "FabricParcel")
      .def("wait", &PythonParcel::wait, nb::arg("timeout"))
      .def("poll", &PythonParcel::poll)
      .def_prop_ro("done", [](PythonParcel& self) { return self.parcel->done(); });
  module.def("fabric_send", begin_send, nb::arg("fabric"), nb::arg("array"), nb::arg("rank"),
             nb::arg("tag"), nb::arg("priority"), nb::arg("site"));
  module.def("fabric_receive", begin_receive, nb::arg("fabric"), nb::arg("array"), nb::arg("rank"),
             nb::arg("tag"), nb::arg("site"));
  module.def("fabric_put", begin_put, nb::arg("fabric"), nb::arg("array"), nb::arg("region"),
             nb::arg("priority"), nb::arg("site"));
  module.def("fabric_get", begin_get, nb::arg("fabric"), nb::arg("array"), nb::arg("region"),
             nb::arg("priority"), nb::arg("site"));
  module.def("fabric_region", shown_region, nb::arg("fabric"), nb::arg("array"));
}
