// The extension tutti._core: thin wrappers, no logic. An Error becomes tutti.Error with the same
// words; what Python gives us by the buffer protocol is read where it lies.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "base/hash.h"
#include "base/result.h"
#include "base/units.h"
#include "base/version.h"
#include "cluster.h"
#include "decoder.h"
#include "fabric.h"
#include "model.h"
#include "parcel.h"
#include "plan.h"
#include "program.h"
#include "raise.h"
#include "record.h"
#include "shard.h"
#include "trainer.h"
#include "vault.h"

namespace nb = nanobind;

namespace {

// Below this, letting other Python threads run costs more than the work itself.
constexpr size_t kReleaseGilBytes = tutti::operator""_KiB(64);

// A read-only view of any contiguous Python buffer, for as long as it lives.
class BufferView {
 public:
  explicit BufferView(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;
  ~BufferView() { PyBuffer_Release(&view_); }

  tutti::Bytes bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

uint64_t hash64(nb::handle data, uint64_t seed) {
  const BufferView view(data);
  if (view.bytes().size() < kReleaseGilBytes) return tutti::hash64(view.bytes(), seed);
  const nb::gil_scoped_release others_may_run;
  return tutti::hash64(view.bytes(), seed);
}

double parse_duration(std::string_view text) {
  return tutti::to_seconds(value_or_raise(tutti::parse_duration(text)));
}

}  // namespace

NB_MODULE(_core, module) {
  module.attr("version") = nb::str(tutti::kVersion.data(), tutti::kVersion.size());
  module.def("hash64", hash64, nb::arg("data"), nb::arg("seed") = 0,
             "XXH3 of a contiguous buffer, read in place.");
  module.def("parse_duration", parse_duration, nb::arg("text"),
             "Seconds in text such as '250ms', '1.5s', '2m30s'; raises tutti.Error.");
  bind_record(module);
  bind_cluster(module);
  bind_plan(module);
  bind_fabric(module);
  bind_parcel(module);
  bind_vault(module);
  bind_model(module);
  bind_shard(module);
  bind_program(module);
  bind_trainer(module);
  bind_decoder(module);
}
